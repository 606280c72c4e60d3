"""What a topic must do, as lists: who publishes is told nothing of bindings, and nothing is lost.

A message is a name.  A topic has a backlog; everything bound to it is a *sink* that gets a copy.
What is deferred has a time; nobody may have it ready before.  Order is that of the publishes, but
for what was deferred.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Sink:
    """A channel, or some queue behind a binding."""

    ready: list[bytes] = field(default_factory=list)
    deferred: dict[bytes, int] = field(default_factory=dict)
    was_deferred: set[bytes] = field(default_factory=set)

    def take(self, name: bytes, until_ms: int) -> None:
        if until_ms:
            self.deferred[name] = until_ms
        else:
            self.ready.append(name)

    def tick(self, now_ms: int) -> None:
        for name, until_ms in list(self.deferred.items()):
            if until_ms <= now_ms:
                del self.deferred[name]
                self.was_deferred.add(name)
                self.ready.append(name)

    def gone(self, name: bytes) -> None:
        self.ready.remove(name)


@dataclass
class ModelTopic:
    ephemeral: bool
    paused: bool = False
    sinks: dict[str, Sink] = field(default_factory=dict)
    backlog: dict[bytes, int] = field(default_factory=dict)
    """Name to time, 0 = not deferred; in order of the publishes."""
    count: int = 0

    def may_move(self) -> bool:
        return not self.paused and bool(self.sinks)

    def holds(self) -> bool:
        return not self.may_move() or bool(self.backlog)

    def publish(self, names: list[bytes], until_ms: int) -> None:
        self.count += len(names)
        for name in names:
            self.backlog[name] = until_ms

    def move(self) -> None:
        """All of it goes to all that is bound now."""
        if not self.may_move():
            return
        for name, until_ms in self.backlog.items():
            for sink in self.sinks.values():
                sink.take(name, until_ms)
        self.backlog = {}
