"""The event loop: sockets in, sockets out, and one broker turn in between.

    poll ─► read every ready socket once ─► turn ─► write every touched socket once

A connection is read and written at most once per turn: a turn is short, and what it produced leaves
in one system call.  A peer that does not take its bytes is not read from either, above a limit.
When the reason why publishers are blocked changes (``broker/rules/admission.py``), ``_move_gate``
calls every session.
"""

import logging
import select
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Final, cast

from penstock.clocks import mono_ms, wall_ms
from penstock.core.clock_types import MonoMs, WallMs
from penstock.gate import Gate
from penstock.runtime.connection import READ_MIN_BYTES, Carrier, Connection, SessionFactory
from penstock.runtime.descriptors import Descriptors
from penstock.runtime.listener import Listener
from penstock.runtime.session import Session
from penstock.runtime.thread_calls import T, ThreadCalls
from penstock.runtime.turn import Turn
from penstock.settings.listener_table import PEER

READ_MAX_BYTES: Final = 256 * 1024
TURN_READ_BYTES: Final = 4 * 1024 * 1024
"""Connections that have much to say together read about so much in a turn, but each at least
``READ_MIN_BYTES``: consumers have their turn as often as with few publishers."""
LINGER_MAX_MS: Final = 35_000
"""A closed session whose last words are not taken is given up; longer than any session waits."""
OUTPUT_LIMIT_BYTES: Final = 4 * 1024 * 1024
"""Above this much unsent output a connection is not read."""
HOLD_MS: Final = 5
"""How long the loop sleeps at most while a queue keeps publishers waiting."""
TICK_MS: Final = 250
"""Also the precision of heartbeats: the shortest are sent every half second."""
WAITERS_MS: Final = 20
"""How often sessions that wait for messages to come are asked again."""
ACCEPTS_MAX: Final = 64
PARTS_MAX: Final = 16
"""So often in a row it reads parts of large frames, with nothing else to do, without a turn."""

_IN: Final = select.EPOLLIN
_OUT: Final = select.EPOLLOUT

logger = logging.getLogger("penstock.loop")


class Loop:
    """Listeners, connections, calls from other threads, and time."""

    def __init__(self, turn: Turn, sessions: SessionFactory, gate: Gate | None = None) -> None:
        """``gate``: which connections are let in; None: all."""
        self._gatekeeper = gate
        self._let_in: dict[int, str] = {}  # addresses, by descriptor
        self.turn = turn
        self.connections: dict[int, Connection] = {}
        self.stopping = False
        self._sessions = sessions
        self._descriptors = Descriptors()
        self._epoll = select.epoll()
        self.listeners: dict[int, Listener] = {}
        self._listeners_rest = False  # until the next tick
        self._calls = ThreadCalls()
        self._epoll.register(self._calls.fd, _IN)
        self._flow = turn.flow
        self._received_ns = 0  # of a measured turn
        self._large_reads = 0  # in this turn
        self._parts = 0  # polls that brought nothing else, since the last turn
        self._admission = turn.admission
        self._gate = ""  # why publishers are blocked now
        self._gates: dict[str, str] = {}  # and why not to some virtual hosts
        self._full: list[Connection] = []  # hold so many publishes that they are not read
        self._full_at_bytes = 0  # held by all, when those were last looked at
        self._heads: list[Connection] = []  # while what they asked for comes from the disk
        self._tick_at_ms = MonoMs(0)
        self._waiters: list[Session] = []  # range readers waiting for messages

    # -- from other threads --------------------------------------------------------------

    def wake(self) -> None:
        """Make the loop turn; safe from any thread and from signal handlers."""
        self._calls.ring()

    def call(self, function: Callable[[], T]) -> "Future[T]":
        """Run ``function`` between two turns; safe from any thread."""
        return self._calls.add(function)

    # -- listening -----------------------------------------------------------------------

    def listen(self, listener: Listener) -> None:
        """Accept connections there."""
        fd = listener.sock.fileno()
        self.listeners[fd] = listener
        self._epoll.register(fd, _IN)

    def stop_listening(self, to_peers: bool = True) -> None:
        """Accept no more clients, with ``to_peers`` no other nodes either."""
        for fd, listener in list(self.listeners.items()):
            if to_peers or listener.protocol != PEER:
                self._epoll.unregister(fd)
                listener.close()
                del self.listeners[fd]

    def _accept(self, listener: Listener, now_ms: MonoMs) -> None:
        for _ in range(ACCEPTS_MAX):
            try:
                sock, peer = listener.accept()
            except BlockingIOError:
                return
            except ConnectionError:
                continue  # it has already gone
            except OSError as error:
                self._rest_listeners(error)
                return
            if self._may_enter(listener, sock.fileno(), peer[0], now_ms):
                self._add(listener.connection(sock, peer, now_ms))
            else:
                sock.close()

    def _may_enter(self, listener: Listener, fd: int, address: str, now_ms: MonoMs) -> bool:
        gate = self._gatekeeper
        has_room = self._descriptors.has_room(fd, address, self.connections, now_ms)
        if gate is None:
            return has_room
        if not has_room:
            gate.refused("descriptors", listener.protocol, address)
            return False
        if gate.admit(listener.protocol, address, listener.proxied) != "":
            return False
        self._let_in[fd] = address
        return True

    def _add(self, connection: Connection) -> None:
        self.connections[connection.fd] = connection
        self._epoll.register(connection.fd, _IN)

    def adopt(self, connection: Connection, session: Session) -> None:
        """A connection that this node has opened to another one."""
        connection.carry(session)
        self._add(connection)
        self.turn.touch(session)

    def _rest_listeners(self, error: OSError) -> None:
        """Out of descriptors or memory: connections that wait must not wake it all the time."""
        logger.warning("cannot accept connections: %s; trying again soon", error.strerror)
        for fd in self.listeners:
            self._epoll.modify(fd, 0)
        self._listeners_rest = True

    # -- the loop ------------------------------------------------------------------------

    def run_once(self, longest_ms: int) -> MonoMs:
        """Wait for something to do, no longer than that; do it, write what came of it.

        Returns the time at its end.
        """
        turn = self.turn
        timeout_ms = 0
        if not turn.has_work() and not self._calls.waiting:
            timeout_ms = self._wait_ms(longest_ms)
        ready = self._epoll.poll(timeout_ms / 1000)
        now_ms, since_boot_ms = wall_ms(), mono_ms()
        turn.begin(now_ms, since_boot_ms)
        if self._flow.book.freed:
            since = time.perf_counter_ns()
            self._go_on_publishing(now_ms)
            self._received_ns += time.perf_counter_ns() - since
        # As many as in the last turn are expected to have much to say.
        share_bytes = max(READ_MIN_BYTES, TURN_READ_BYTES // max(self._large_reads, 1))
        self._large_reads = 0
        for fd, mask in ready:
            connection = self.connections.get(fd)
            if connection is None:
                self._other(fd, since_boot_ms)
                continue
            if mask & ~_OUT:
                self._read(connection, now_ms, share_bytes)
            if mask & _OUT and not connection.gone:
                self._write(connection, now_ms)
        if timeout_ms > 0 and self._are_parts(ready):
            return mono_ms()
        self._calls.run()
        if since_boot_ms >= self._tick_at_ms:
            self._tick(now_ms, since_boot_ms)
        self._run_turn(now_ms, not ready)
        if self._waiters:
            self._tick_waiters(now_ms)
        if self._heads:
            self._go_on(now_ms)
        if turn.blocked_reason() != self._gate or self._admission.vhost_reasons != self._gates:
            self._move_gate()
        self.flush(now_ms)
        ended_ms = mono_ms()
        self._flow.end_turn(ended_ms)  # waits are as long as the turn
        if self._full and self._flow.held_bytes != self._full_at_bytes:
            self._full_at_bytes = self._flow.held_bytes
            self._read_those_with_room()
        return ended_ms

    def _are_parts(self, ready: list[tuple[int, int]]) -> bool:
        """Of frames that are not complete: nothing comes of them in a turn."""
        before, self._parts = self._parts, 0
        if not ready or before == PARTS_MAX - 1:
            return False
        for fd, mask in ready:
            connection = self.connections.get(fd)
            session = None if connection is None else connection.session
            if mask != _IN or session is None or not session.is_mid_frame:
                return False
        self._parts = before + 1
        return True

    def _run_turn(self, now_ms: WallMs, idle: bool) -> None:
        if not self._flow.measuring:
            self.turn.run(now_ms, idle)
            self._received_ns = 0
            return
        since = time.perf_counter_ns()
        self.turn.run(now_ms, idle)
        self._flow.measured(self._received_ns, time.perf_counter_ns() - since, mono_ms())
        self._received_ns = 0

    def _wait_ms(self, longest_ms: int) -> int:
        """How long the loop may sleep."""
        if self._waiters:
            longest_ms = min(longest_ms, WAITERS_MS)
        if self._flow.is_someone_behind():
            longest_ms = min(longest_ms, HOLD_MS)
        return int(self.turn.wait_ms(longest_ms, wall_ms(), mono_ms()))

    def _other(self, fd: int, now_ms: MonoMs) -> None:
        listener = self.listeners.get(fd)
        if listener is not None:
            self._accept(listener, now_ms)
        elif fd == self._calls.fd:
            self._calls.heard()

    def _tick(self, now_ms: WallMs, since_boot_ms: MonoMs) -> None:
        self._tick_at_ms = MonoMs(since_boot_ms + TICK_MS)
        if self._listeners_rest:
            self._listeners_rest = False
            for fd in self.listeners:
                self._epoll.modify(fd, _IN)
        self._sessions.tick(now_ms)
        self.turn.output.tick()
        for connection in list(self.connections.values()):
            session = connection.session
            if session is None:
                if self._sessions.is_overdue(connection, since_boot_ms):
                    self._drop(connection, now_ms)
                continue
            paused = connection.paused
            session.note_reading(paused, not paused and connection.mask & _IN == 0)
            connection.slim()
            self.turn.output.limit(session.outlet)
            if not self._ticked(connection, session, now_ms):
                self._drop(connection, now_ms)
            elif session.closed or session.output_bytes() > 0:
                self.turn.touch(session)

    def _ticked(self, connection: Connection, session: Session, now_ms: WallMs) -> bool:
        """False: the peer is gone, or had time enough to take the last output."""
        try:
            session.tick(now_ms)
        except Exception:  # as in ``_read``
            logger.exception("internal error, closing connection %s", connection.peer)
            return False
        lingers = session.closed and connection.closed_for_ms(mono_ms()) > LINGER_MAX_MS
        return not session.abandoned and not lingers

    def _tick_waiters(self, now_ms: WallMs) -> None:
        for session in self._waiters:
            connection = session.carrier
            if isinstance(connection, Connection):
                if self._ticked(connection, session, now_ms):
                    self.turn.touch(session)
                else:
                    self._drop(connection, now_ms)
        self._waiters = [session for session in self._waiters if session.has_waiters]

    # -- reading -------------------------------------------------------------------------

    def _read(self, connection: Connection, now_ms: WallMs, most_bytes: int) -> None:
        try:
            data = connection.sock.recv(min(connection.read_bytes, most_bytes))
        except BlockingIOError:
            return
        except OSError:
            self._drop(connection, now_ms)
            return
        if not data:
            session = connection.session
            if session is None or not session.hung_up(now_ms):
                self._drop(connection, now_ms)
                return
            connection.pause()
            self.turn.fed(session)
            return
        size = len(data)
        if size >= READ_MIN_BYTES:
            self._large_reads += 1
        if size == connection.read_bytes and size < READ_MAX_BYTES:
            connection.read_at_once(size * 2)
        elif size * 4 < connection.read_bytes and connection.read_bytes > READ_MIN_BYTES:
            connection.read_at_once(connection.read_bytes // 2)
        session = connection.session
        if session is None:
            session = self._choose(connection, data, now_ms)
            if session is None:
                return
            data = connection.take_first()
        since = time.perf_counter_ns() if self._flow.measuring else 0
        try:
            session.receive(data, now_ms)
        except Exception:  # a fault of ours costs one connection, not the broker
            logger.exception("internal error, closing connection %s", connection.peer)
            self._drop(connection, now_ms)
            return
        if self._flow.measuring:
            self._received_ns += time.perf_counter_ns() - since
        self.turn.fed(session)
        if session.has_waiters and session not in self._waiters:
            self._waiters.append(session)
        if session.waiting_head:
            self._await_head(connection)
        elif not self._flow.may_read_on(session.held_bytes):
            connection.pause()
            self._full.append(connection)
            self._watch(connection)

    def _choose(self, connection: Connection, data: bytes, now_ms: WallMs) -> Session | None:
        gate = self._gatekeeper
        if (
            gate is not None
            and connection.own is not None  # it came through a proxy
            and not gate.is_allowed(connection.protocol, connection.peer[0])
        ):
            self._drop(connection, now_ms)
            return None
        session = self._sessions.choose(
            connection.add_first(data),
            connection.peer,
            now_ms,
            connection.login,
            connection.protocol,
        )
        if session is not None:
            connection.carry(session)
        return session

    def _move_gate(self) -> None:
        """Memory or disk has become short, or is not any more."""
        self._gate = self.turn.blocked_reason()
        self._gates = dict(self._admission.vhost_reasons)
        for connection in self.connections.values():
            session = connection.session
            if session is not None:
                session.look_at_gate()
                self.turn.touch(session)

    def _go_on_publishing(self, now_ms: WallMs) -> None:
        """Readers that have credit again: first what they hold, then what else comes."""
        for stage in self._flow.book.take_freed():
            session = stage.owner
            assert isinstance(session, Session)
            connection = session.carrier
            if session.held_bytes == 0 or not isinstance(connection, Connection):
                continue
            try:
                session.resume(now_ms)
            except Exception:  # as in ``_read``
                logger.exception("internal error, closing connection %s", connection.peer)
                self._drop(connection, now_ms)
                continue
            self.turn.fed(session)
            if session.waiting_head:
                self._await_head(connection)

    def _await_head(self, connection: Connection) -> None:
        """Whatever else it is not read for, it goes on when the head is there."""
        connection.pause()
        self._heads.append(connection)
        self._watch(connection)

    def _read_those_with_room(self) -> None:
        full, self._full = self._full, []
        for connection in full:
            session = connection.session
            if session is None or session.waiting_head:
                continue
            if self._flow.may_read_on(session.held_bytes):
                self._read_again(connection)
            else:
                self._full.append(connection)

    def _go_on(self, now_ms: WallMs) -> None:
        """Sessions that asked for the head of a queue: is it there?"""
        waiting, self._heads = self._heads, []
        for connection in waiting:
            session = connection.session
            if session is None or connection.gone:
                continue
            try:
                session.go_on(now_ms)
            except Exception:  # as in ``_read``
                logger.exception("internal error, closing connection %s", connection.peer)
                self._drop(connection, now_ms)
                continue
            self.turn.fed(session)
            if session.waiting_head:
                self._heads.append(connection)
            else:
                self._read_again(connection)

    def _read_again(self, connection: Connection) -> None:
        connection.unpause()
        if not connection.gone:
            self._watch(connection)

    # -- writing -------------------------------------------------------------------------

    def flush(self, now_ms: WallMs) -> None:
        """Write what the touched sessions have to say."""
        touched = self.turn.take_touched()
        if not touched:
            return
        stood_still = self.turn.stood_still(now_ms)
        for session in touched:
            session.touched = False
            connection = session.carrier
            if not isinstance(connection, Connection) or connection.gone:
                continue
            if stood_still:
                self._drop(connection, now_ms)  # what it would be told may not be true any more
            else:
                self._write(connection, now_ms)

    def _write(self, connection: Connection, now_ms: WallMs) -> None:
        session = connection.session
        if session is None or (session.mute_until_ms > 0 and mono_ms() < session.mute_until_ms):
            return
        try:
            self._send(connection, session, now_ms)
        except BlockingIOError:
            pass
        except OSError:
            self._drop(connection, now_ms)
            return
        except Exception:  # as in ``_read``
            logger.exception("internal error, closing connection %s", connection.peer)
            self._drop(connection, now_ms)
            return
        left = connection.left_bytes
        self.turn.output.wrote(session.outlet, left)
        if left == 0:
            if session.closed:
                self._close(connection, session, now_ms)
                return
            if session.swaps_carrier:
                self._swap_carrier(connection, session, now_ms)
                return
            if not session.outlet.open:
                session.outlet.reopen()
                session.drained()
        self._watch(connection)

    def _send(self, connection: Connection, session: Session, now_ms: WallMs) -> None:
        while connection.unsent or connection.take_output(session):
            count = connection.send()
            session.sent(count, now_ms)
            connection.sent(count)

    def _swap_carrier(self, connection: Connection, session: Session, now_ms: WallMs) -> None:
        """What it said has left the old way; from now on it speaks through the new one."""
        try:
            sock = session.next_carrier(connection.sock, lambda: self.turn.touch(session))
        except Exception:  # as in ``_read``
            logger.exception("internal error, closing connection %s", connection.peer)
            self._drop(connection, now_ms)
            return
        connection.swap(cast(Carrier, sock))
        self._read(connection, now_ms, READ_MAX_BYTES)  # what came early lies in it already
        if not connection.gone:
            self._write(connection, now_ms)

    def _watch(self, connection: Connection) -> None:
        """Ask for exactly the events we can use."""
        session = connection.session
        left = connection.left_bytes
        waiting = left
        if session is not None:
            waiting += int(session.output_bytes())
        mask = _IN if not connection.paused and waiting <= OUTPUT_LIMIT_BYTES else 0
        if left > 0:
            mask |= _OUT
        if mask != connection.mask:
            connection.watched(mask)
            self._epoll.modify(connection.fd, mask)

    def shut_down_sessions(self) -> None:
        """The broker stops: let every session say so."""
        now_ms = wall_ms()
        for connection in list(self.connections.values()):
            session = connection.session
            if session is None:
                self._drop(connection, now_ms)
            else:
                session.shut_down()
                self.turn.touch(session)
        self.flush(now_ms)

    # -- endings -------------------------------------------------------------------------

    def _close(self, connection: Connection, session: Session, now_ms: WallMs) -> None:
        """The session is done: say goodbye so that the peer reads our last words."""
        if mono_ms() < session.close_after_ms:
            self._watch(connection)
            return
        connection.say_goodbye()
        self._drop(connection, now_ms)

    def _drop(self, connection: Connection, now_ms: WallMs) -> None:
        if connection.gone:
            return
        self._epoll.unregister(connection.fd)
        del self.connections[connection.fd]
        address = self._let_in.pop(connection.fd, "")
        if address != "" and self._gatekeeper is not None:
            self._gatekeeper.left(address)
        connection.drop()
        session = connection.session
        if session is not None:
            self.turn.output.wrote(session.outlet, 0)
            try:
                session.lost(now_ms)
            except Exception:  # as above
                logger.exception("internal error after the loss of %s", connection.peer)

    def drop_all(self) -> None:
        for connection in list(self.connections.values()):
            self._drop(connection, wall_ms())

    def close(self) -> None:
        self.stop_listening()
        self._epoll.close()
        self._calls.close()
