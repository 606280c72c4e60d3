"""A private network on this machine: hosts in network namespaces, cables that can be cut.

    with PrivateNetwork(3) as network:
        network.popen(0, ["penstock", "serve", ...])     a process on the first host
        network.cut(0, 1)                                 these two hear nothing of each other
        network.cut_one_way(0, 1)                         what the first says is lost, only
        network.heal()

The hosts have addresses ``network.address(0)``..., this process reaches all of them, and a cut is
silent: packets are dropped where they arrive, nobody is told, connections just hear nothing more.

Needs root and ``ip`` (Debian: iproute2); ``missing_reason`` says what is missing.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from typing import Any, Self

from tests.helpers.broker_process import Place

NETWORKS = 200
HOSTS_MAX = 100


def missing_reason() -> str | None:
    """Why there can be no private network here, and what would help; None when there can."""
    if shutil.which("ip") is None:
        return "there is no ip command (Debian: apt-get install iproute2)"
    if os.geteuid() != 0:
        return "network namespaces need root (run the tests with sudo)"
    name = f"pst{os.getpid()}"
    made = subprocess.run(["ip", "netns", "add", name], capture_output=True, check=False)
    if made.returncode != 0:
        return f"network namespaces are not allowed here: {made.stderr.decode().strip()}"
    # A root that is no mount point (chroot alone) makes namespaces that no command can enter.
    entered = subprocess.run(
        ["ip", "netns", "exec", name, "true"], capture_output=True, check=False
    )
    subprocess.run(["ip", "netns", "del", name], check=True)
    if entered.returncode != 0:
        return f"network namespaces cannot be entered here: {entered.stderr.decode().strip()}"
    return None


def _ip(*words: str) -> None:
    done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise OSError(f"ip {' '.join(words)}: {done.stderr.strip()}")


class PrivateNetwork:
    """``hosts`` namespaces on one bridge, which is in this process's own namespace."""

    def __init__(self, hosts: int) -> None:
        assert 0 < hosts <= HOSTS_MAX
        self.hosts = hosts
        self._number = -1
        self._own = 0  # addresses of this process besides the first
        self._cuts: set[tuple[int, int]] = set()

    @property
    def _bridge(self) -> str:
        return f"pst{self._number}"

    def _namespace(self, host: int) -> str:
        return f"pst{self._number}h{host}"

    def address(self, host: int) -> str:
        return f"10.213.{self._number}.{host + 1}"

    def another_address(self) -> str:
        """One more of this process, which the hosts reach."""
        self._own += 1
        address = f"10.213.{self._number}.{HOSTS_MAX + self._own}"
        _ip("addr", "add", f"{address}/32", "dev", self._bridge)
        return address

    def __enter__(self) -> Self:
        self._take_number()
        try:
            _ip("addr", "add", f"10.213.{self._number}.254/24", "dev", self._bridge)
            _ip("link", "set", self._bridge, "up")
            for host in range(self.hosts):
                self._add(host)
        except OSError:
            self.close()
            raise
        return self

    def _take_number(self) -> None:
        """The first network nobody has: creating its bridge is what takes it."""
        for number in range(NETWORKS):
            with contextlib.suppress(OSError):
                _ip("link", "add", f"pst{number}", "type", "bridge")
                self._number = number
                return
        raise OSError("no private network is free: ip link shows who has them")

    def _add(self, host: int) -> None:
        name, outside, inside = self._namespace(host), f"{self._bridge}v{host}", "net0"
        _ip("netns", "add", name)
        _ip("link", "add", outside, "type", "veth", "peer", "name", inside, "netns", name)
        _ip("link", "set", outside, "master", self._bridge, "up")
        _ip("-n", name, "addr", "add", f"{self.address(host)}/24", "dev", inside)
        _ip("-n", name, "link", "set", inside, "up")
        _ip("-n", name, "link", "set", "lo", "up")
        # Cuts are rules about senders, and must come before the one that takes what is for us.
        _ip("-n", name, "rule", "add", "pref", "100", "lookup", "local")
        _ip("-n", name, "rule", "del", "pref", "0")

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Whoever is still running there keeps what it has open, and reaches nobody."""
        for host in range(self.hosts):
            # The kernel takes its time with a namespace: the cable must be gone before the next
            # network has the same number.
            with contextlib.suppress(OSError):
                _ip("link", "del", f"{self._bridge}v{host}")
            with contextlib.suppress(OSError):
                _ip("netns", "del", self._namespace(host))
        with contextlib.suppress(OSError):
            _ip("link", "del", self._bridge)

    # -- processes -------------------------------------------------------------------------

    def on(self, host: int, command: list[str]) -> list[str]:
        """The command that runs ``command`` on that host; the process keeps its number."""
        return ["ip", "netns", "exec", self._namespace(host), *command]

    def place(self, host: int) -> Place:
        return Place(self.address(host), tuple(self.on(host, [])))

    def popen(self, host: int, command: list[str], **options: Any) -> subprocess.Popen[Any]:
        return subprocess.Popen(self.on(host, command), **options)

    # -- cables ----------------------------------------------------------------------------

    def cut_one_way(self, sender: int, receiver: int) -> None:
        """What ``sender`` says to ``receiver`` is lost."""
        if (sender, receiver) not in self._cuts:
            self._cuts.add((sender, receiver))
            self._rule("add", sender, receiver)

    def cut(self, one: int, other: int) -> None:
        self.cut_one_way(one, other)
        self.cut_one_way(other, one)

    def split(self, *sides: set[int]) -> None:
        """Nobody on one side hears anybody on another."""
        for number, side in enumerate(sides):
            for other in sides[number + 1 :]:
                for one in side:
                    for its_peer in other:
                        self.cut(one, its_peer)

    def isolate(self, host: int, *others: int) -> None:
        """It and those ``others`` on one side, everybody else on the other."""
        side = {host, *others}
        self.split(side, set(range(self.hosts)) - side)

    def heal(self) -> None:
        """All of it."""
        for sender, receiver in self._cuts:
            self._rule("del", sender, receiver)
        self._cuts = set()

    def _rule(self, verb: str, sender: int, receiver: int) -> None:
        name = self._namespace(receiver)
        _ip("-n", name, "rule", verb, "pref", "10", "from", self.address(sender), "blackhole")
        _ip("-n", name, "route", "flush", "cache")
