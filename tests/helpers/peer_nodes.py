"""Nodes that are nothing but their links: a real loop each, in a thread, with an owner that notes.

``Site`` is a place for some of them on 127.0.0.1 and tells each of all; there is no coordinator.
"""

from __future__ import annotations

import contextlib
import random
import shutil
import socket
import struct
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Self, TypeVar

from penstock.node.node import Node
from penstock.protocols.peers.access import peer_listener
from penstock.protocols.peers.link import LinkFacts, Member
from penstock.protocols.peers.peers import PeerLimits, PeerOwner, Peers
from penstock.runtime.secure_socket import TlsOptions
from penstock.settings.settings import load_settings

T = TypeVar("T")
SECRET = b"a secret of all the nodes"
ECHO, ANSWER = 1, 2
PATIENCE_S = 15.0


def quick(**changes: int) -> PeerLimits:
    """Limits for a test that does not want to wait."""
    return PeerLimits(**{"retry_min_ms": 10, "retry_max_ms": 50} | changes)


class Notes(PeerOwner):
    """Keeps what it was told; sends back what comes on ``ECHO``."""

    def __init__(self) -> None:
        self.peers: Peers | None = None
        self.told: list[str] = []
        self.got: dict[str, list[tuple[int, bytes]]] = {}
        self.takes = True
        self.mood: random.Random | None = None  # takes what comes, or not

    def begun(self, member: Member) -> None:
        self.told.append(f"begun {member}")

    def ended(self, member: Member) -> None:
        self.told.append(f"ended {member}")

    def may_take(self, member: Member) -> bool:
        return self.takes and (self.mood is None or self.mood.random() < 0.5)

    def arrived(self, member: Member, deliveries: list[tuple[int, bytes]]) -> None:
        self.got.setdefault(member.name, []).extend(deliveries)
        assert self.peers is not None
        for stream, payload in deliveries:
            if stream == ECHO:
                self.peers.send(member.name, ANSWER, payload)

    def answers(self, name: str) -> list[bytes]:
        return [payload for stream, payload in self.got.get(name, []) if stream == ANSWER]


class LinkedNode:
    """One life of a node."""

    def __init__(
        self,
        name: str,
        incarnation: str = "1",
        *,
        secret: bytes = SECRET,
        cluster: str = "test",
        limits: PeerLimits | None = None,
        tls: tuple[TlsOptions | None, TlsOptions] | None = None,
        unix_path: str = "",
        port: int = 0,
    ) -> None:
        self.directory = tempfile.mkdtemp(prefix="links-")
        self._node = Node(load_settings(None, {}, {"data_dir": str(Path(self.directory) / "d")}))
        self.loop = self._node.loop
        self.owner = Notes()
        listening, calling = tls or (None, None)
        self.listener = peer_listener("127.0.0.1", port, listening, unix_path)
        self.loop.listen(self.listener)
        self.port = self.listener.port
        self.member = Member(name, incarnation, "127.0.0.1", self.port, unix_path)
        self.peers = Peers(
            self.loop, self.member, cluster, secret, self.owner, limits or quick(), calling
        )
        self.owner.peers = self.peers
        self._node.sessions.join(self.peers)
        self.loop.turn.join(self.peers)
        self._stop = False
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            while not self._stop:
                self.loop.run_once(20)
                self.peers.tick(0)  # a real node does so every 250 ms
        except BaseException as error:
            self.error = error

    def do(self, what: Callable[[], T]) -> T:
        """On its loop."""
        return self.loop.call(what).result(PATIENCE_S)

    def send(self, name: str, payload: bytes, stream: int = ECHO) -> None:
        self.do(lambda: self.peers.send(name, stream, payload))

    def facts(self, name: str) -> LinkFacts:
        return self.do(lambda: next(one for one in self.peers.facts() if one.name == name))

    def is_connected(self, name: str) -> bool:
        return self.do(lambda: self.peers.links[name].connection is not None)

    def close(self, *, politely: bool = True) -> None:
        if self._stop:
            return
        if self.error is None:
            self.do(self.peers.check)
        self._halt()
        if politely and self.error is None:
            self._node.ending.drain(self.peers, lambda: None)
        self.forget()
        if self.error is not None:
            raise self.error

    def _halt(self) -> None:
        self._stop = True
        self.loop.wake()
        self._thread.join(PATIENCE_S)

    def forget(self) -> None:
        """As if its process were gone."""
        self._halt()
        self.peers.stop()
        self.loop.stop_listening()
        self.loop.drop_all()
        self._node.engine.seal(sync=True)
        self._node.committer.close()
        self._node.worker.close()
        self._node.definitions.close()
        self.loop.close()
        shutil.rmtree(self.directory, ignore_errors=True)


class Site:
    """Some nodes who know of each other; a context that closes them."""

    def __init__(self) -> None:
        self.nodes: dict[str, LinkedNode] = {}
        self.doors: dict[str, Member] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        for node in self.nodes.values():
            node.close()

    def add(self, name: str, incarnation: str = "1", **options: object) -> LinkedNode:
        node = LinkedNode(name, incarnation, **options)  # type: ignore[arg-type]
        self.nodes[name] = node
        return node

    def tell(self) -> None:
        """Everybody hears who is a member; ``doors`` are other ways to one."""
        members = [self.doors.get(name, node.member) for name, node in self.nodes.items()]
        for node in self.nodes.values():
            node.do(lambda node=node: node.peers.set_members(members))  # type: ignore[misc]

    def connect(self) -> None:
        self.tell()
        for node in self.nodes.values():
            for name in self.nodes:
                if name != node.member.name:
                    wait_for(lambda node=node, name=name: node.is_connected(name))  # type: ignore[misc]


def wait_for(what: Callable[[], bool], timeout_s: float = PATIENCE_S) -> None:
    deadline = time.monotonic() + timeout_s
    while not what():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.005)


class CuttingProxy:
    """Passes bytes on to ``port`` and cuts a connection when it has passed on so many.

    ``budgets`` gives the number for the next one; without any more it never cuts again.
    """

    def __init__(self, port: int, budgets: Iterator[int]) -> None:
        self._target = ("127.0.0.1", port)
        self._budgets = budgets
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.cuts = 0
        self.passes = True
        self._closed = False
        self._lines: list[_Line] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                caller, _ = self._listener.accept()
                line = _Line(self, caller, self._target, next(self._budgets, None))
                self._lines.append(line)
                if self._closed:
                    line.cut()

    def close(self) -> None:
        self._closed = True
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for line in list(self._lines):
            line.cut()


class _Line:
    """One connection through the proxy: two threads that share what may still go through."""

    def __init__(
        self,
        proxy: CuttingProxy,
        caller: socket.socket,
        target: tuple[str, int],
        budget: int | None,
    ) -> None:
        self._proxy = proxy
        self._left = budget
        self._lock = threading.Lock()
        self._over = False
        called = socket.create_connection(target)
        self._ends = (caller, called)
        for one, other in ((caller, called), (called, caller)):
            threading.Thread(target=self._pass_on, args=(one, other), daemon=True).start()

    def _pass_on(self, one: socket.socket, other: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := one.recv(65536):
                with self._lock:
                    if self._left is not None:
                        data = data[: self._left]
                        self._left -= len(data)
                while not self._proxy.passes:
                    time.sleep(0.01)
                other.sendall(data)
                if self._left == 0:
                    break
        self.cut()

    def cut(self) -> None:
        with self._lock:
            if self._over:
                return
            self._over = True
            self._proxy.cuts += self._left == 0
        for sock in self._ends:
            with contextlib.suppress(OSError):
                # A reset: what lies in buffers is lost too.
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                sock.shutdown(socket.SHUT_RDWR)
            sock.close()
