"""One random life of a group: its members, their links, a store of views, and the judge.

A life is its seed.  ``RingLife.live`` takes some hundred steps, then lets everything heal and
come to rest, then judges: all that was delivered, at every moment; what survivors have, at the end.
"""

from __future__ import annotations

import random
from collections import Counter

from penstock.cluster.remote.link_session import LinkSession, Parcel
from penstock.cluster.ring.codec import decode, encode
from penstock.cluster.ring.ready import BIRTH, DEATH
from penstock.cluster.ring.ring import Ring
from penstock.cluster.ring.views import NO_VIEW, View, from_json
from tests.simulation.sim_network import SimNetwork

STORE = "store"
LEASE_MS = 400
RESEND_MS = 100
EVERYTHING = 1 << 30


class ViewStore:
    """The group's key with compare-and-set, and leases; what happened, in order, for everybody."""

    def __init__(self) -> None:
        self.text = ""
        self.version = 0
        self.log: list[str] = []  # a view's JSON, or "died " and a member
        self.died: set[str] = set()

    def propose(self, view: View) -> bool:
        if view.version != self.version + 1:
            return False
        self.text = view.to_json()
        self.version = view.version
        self.log.append(self.text)
        return True

    def end_lease(self, member: str) -> None:
        if member not in self.died:
            self.died.add(member)
            self.log.append(f"died {member}")


class Node:
    """One member: its ring, its links, and what it saw, judged as it comes."""

    def __init__(self, name: str, place: int, store: ViewStore) -> None:
        self.name = name
        self.ring = Ring(name, place)
        self.links: dict[str, LinkSession] = {}
        self.epochs: dict[str, int] = {}
        self.running = True
        self.lease_ms = 0  # when it last renewed it
        self.seen = len(store.log)
        self.proposals: list[tuple[int, View]] = []
        self.sent: dict[int, bytes] = {}
        self.knew: dict[str, int] = {}  # member → number before the first it surely gets
        self.claimed = 0  # went round
        self.got: dict[str, list[int]] = {}
        self.born: set[str] = set()
        self.dead: set[str] = set()
        self.ring.view_changed(from_json(store.text) if store.text else NO_VIEW)
        for member in sorted(store.died):
            self.ring.member_died(member)


class RingLife:
    """``hasty``: hardly anybody is there long enough to hear all."""

    def __init__(self, seed: int, steps: int = 400, *, hasty: bool = False) -> None:
        self.rng = random.Random(seed)
        self.steps = steps
        self.now_ms = 0
        rng = self.rng
        self.most = rng.randint(2, 6)
        self.loss = rng.choice((0.0, 0.02, 0.15))
        self.net = SimNetwork(
            rng, loss=self.loss, doubling=self.loss, slowest_ms=rng.choice((2, 10, 60))
        )
        self.trouble = 0.2 if hasty else rng.choice((0.005, 0.02, 0.06))
        self.store = ViewStore()
        self.nodes: dict[str, Node] = {}  # every life there ever was
        self.counts: Counter[str] = Counter()
        for _ in range(rng.randint(1, self.most)):
            self.start()

    # -- the steps --------------------------------------------------------------------------

    def live(self) -> None:
        for _ in range(self.steps):
            self.step()
        self.come_to_rest()
        self.judge_survivors()
        self.counts += self.net.counts
        self.counts["lives"] += len(self.nodes)

    def step(self) -> None:
        self.counts["steps"] += 1
        rng = self.rng
        self.now_ms += rng.choice((0, 1, 1, 2, 5, 20))
        if rng.random() < self.trouble:
            rng.choice(
                (
                    self.start,
                    self.start,
                    self.crash,
                    self.crash,
                    self.leave,
                    self.kick,
                    self.cut,
                    self.heal,
                    self.reconnect,
                )
            )()
        self.end_leases()
        running = self.running()
        if not running:
            self.start()
            return
        node = rng.choice(running)
        if rng.random() < 0.4:
            self.broadcast(node)
        if rng.random() < 0.9:
            self.work(node)

    def running(self) -> list[Node]:
        return [node for node in self.nodes.values() if node.running]

    def some(self) -> Node | None:
        running = self.running()
        return self.rng.choice(running) if running else None

    def start(self) -> None:
        if len(self.running()) >= self.most:
            return
        self.counts["starts"] += 1
        name = f"n{len(self.nodes)}"
        node = Node(name, self.rng.randrange(1000), self.store)
        node.lease_ms = self.now_ms
        self.nodes[name] = node

    def crash(self) -> None:
        node = self.some()
        if node is not None:
            self.counts["crashes"] += 1
            self.end(node)

    def end(self, node: Node) -> None:
        """Nobody runs there any more; its lease ends some time later, if it has one."""
        node.running = False
        self.net.forget(node.name)

    def leave(self) -> None:
        node = self.some()
        if node is not None:
            node.ring.leave()

    def kick(self) -> None:
        """Somebody (a queue's master) does not want to wait for somebody any longer."""
        node = self.some()
        if node is None or not self.net.reaches(node.name, STORE):
            return
        live = node.ring.view.live()
        if len(live) > 1 and node.name in live:
            whom = self.rng.choice(live)
            self.counts["kicks"] += self.store.propose(node.ring.view.with_dead([whom]))

    def cut(self) -> None:
        places = [node.name for node in self.running()] + [STORE]
        self.net.cut_off(self.rng.sample(places, self.rng.randint(1, max(1, len(places) - 1))))

    def heal(self) -> None:
        self.net.heal()

    def reconnect(self) -> None:
        """A connection breaks, with all that was on it, and the next one is there."""
        node, other = self.some(), self.some()
        if node is None or other is None or other.name not in node.links:
            return
        if node.name not in other.links:
            return
        self.counts["reconnections"] += 1
        mine, theirs = node.links[other.name], other.links[node.name]
        for end in (mine, theirs):
            end.disconnected()
        mine.connected(theirs.last_received)
        theirs.connected(mine.last_received)
        node.epochs[other.name] += 1
        other.epochs[node.name] = node.epochs[other.name]

    def end_leases(self) -> None:
        for node in self.nodes.values():
            if node.running and self.net.reaches(node.name, STORE):
                if node.name not in self.store.died:
                    node.lease_ms = self.now_ms
            elif self.now_ms - node.lease_ms > LEASE_MS:
                self.store.end_lease(node.name)

    def broadcast(self, node: Node) -> None:
        if node.ring.stopped or node.ring.leaving:
            return
        for _ in range(self.rng.choice((1, 1, 3))):
            payload = b"%s %d" % (node.name.encode(), len(node.sent))
            node.sent[node.ring.broadcast(payload)] = payload
            self.counts["broadcasts"] += 1

    # -- one turn of one member ---------------------------------------------------------------

    def work(self, node: Node) -> None:
        for sender, (epoch, parcels) in self.net.arrived(node.name, self.now_ms):
            self.receive(node, sender, epoch, parcels)
        if self.net.reaches(node.name, STORE):
            self.hear_store(node)
        node.ring.tick(self.now_ms)
        self.take(node)
        for peer, link in node.links.items():
            link.tick(self.now_ms)
            link.check()
            assert not link.fault
            parcels = link.take_outgoing(self.rng.choice((200, 2000, EVERYTHING)))
            if parcels:
                self.net.send(node.name, peer, (node.epochs[peer], parcels), self.now_ms)
        if node.ring.stopped:
            self.counts["stopped"] += 1
            self.end(node)

    def link(self, node: Node, peer: str) -> LinkSession:
        link = node.links.get(peer)
        if link is None:
            link = node.links[peer] = LinkSession(self.now_ms, resend_after_ms=RESEND_MS)
            link.connected(0)
            node.epochs[peer] = 0
        return link

    def receive(self, node: Node, sender: str, epoch: int, parcels: list[Parcel]) -> None:
        link = self.link(node, sender)
        if epoch != node.epochs[sender]:
            return
        for _, payload in link.receive(parcels):
            node.ring.step(sender, decode(payload))
            node.ring.check()

    def hear_store(self, node: Node) -> None:
        """One after the other, or several at once: then only the newest view is told."""
        log = self.store.log
        upto = self.rng.choice((node.seen, node.seen + 1, node.seen + 1, len(log)))
        for at in range(node.seen, min(upto, len(log))):
            said = log[at]
            if said.startswith("died "):
                node.ring.member_died(said[5:])
            elif at + 1 == len(log) or upto == node.seen + 1:
                self.see(node, from_json(said))
        node.seen = max(node.seen, min(upto, len(log)))
        if node.seen == len(log) and self.store.text:
            self.see(node, from_json(self.store.text))  # whose event may have been jumped over
        for due_ms, view in node.proposals[:]:
            if due_ms <= self.now_ms:
                node.proposals.remove((due_ms, view))
                accepted = self.store.propose(view)
                self.counts["views" if accepted else "views refused"] += 1

    def see(self, node: Node, view: View) -> None:
        sent = node.ring.broadcast_count()
        node.ring.view_changed(view)
        if node.name in node.ring.view.members:
            for member in view.members:
                node.knew.setdefault(member, sent)
        node.ring.check()

    def take(self, node: Node) -> None:
        ready = node.ring.take()
        node.ring.check()
        for kind, member, number, payload in ready.delivered:
            self.judge(node, kind, member, number, payload)
        for receiver, message in ready.messages:
            self.counts["messages"] += 1
            self.link(node, receiver).send(0, b"".join(encode(message)))
        if ready.proposal is not None:
            due_ms = self.now_ms + self.rng.choice((0, 5, 50))
            node.proposals.append((due_ms, ready.proposal))
        assert ready.went_round >= node.claimed
        node.claimed = ready.went_round

    # -- the judge --------------------------------------------------------------------------

    def judge(self, node: Node, kind: int, member: str, number: int, payload: bytes) -> None:
        assert member not in node.dead, f"{node.name} hears of {member} after its death"
        if kind == BIRTH:
            assert member not in node.born, f"{member} is born twice at {node.name}"
            node.born.add(member)
            return
        assert member in node.born, f"{node.name} hears of {member} before its birth"
        if kind == DEATH:
            node.dead.add(member)
            return
        self.counts["deliveries"] += 1
        origin = self.nodes[member]
        assert origin.sent[number] == payload
        got = node.got.setdefault(member, [])
        if got:
            between = [one for one in range(got[-1] + 1, number) if one in origin.sent]
            assert number > got[-1], f"{member}'s {number} at {node.name} after {got[-1]}"
            assert not between, f"{member}'s {between} never came to {node.name}"
        elif node.name in origin.knew:
            missed = [one for one in origin.sent if origin.knew[node.name] < one < number]
            assert not missed, f"{member} knew {node.name}, and {missed} never came to it"
        got.append(number)

    def come_to_rest(self) -> None:
        self.net.heal()
        self.net.loss = self.net.doubling = min(self.loss, 0.02)
        for turn in range(30_000):
            self.now_ms += 2
            self.end_leases()
            running = self.running()
            if not running:
                self.start()
                continue
            self.work(self.rng.choice(running))
            if turn % 20 == 0 and self.is_at_rest():
                return
        views = {node.name: repr(node.ring.view) for node in self.running()}
        raise AssertionError(f"it never comes to rest: {views}")

    def is_at_rest(self) -> bool:
        running = self.running()
        live = set(self.nodes[running[0].name].ring.view.live()) if running else set()
        return (
            live == {node.name for node in running}
            and all(node.seen == len(self.store.log) for node in running)
            and all(node.ring.is_at_rest() for node in running)
            and not any(
                link.waiting_count
                for node in running
                for peer, link in node.links.items()
                if self.nodes[peer].running
            )
        )

    def judge_survivors(self) -> None:
        survivors = self.running()
        for node in survivors:
            assert node.claimed == node.ring.broadcast_count()
            assert node.ring.kept_bytes() == 0
            heard = node.born - node.dead | {node.name}
            assert heard == {one.name for one in survivors}, f"{node.name} thinks of {heard}"
        for origin in self.nodes.values():
            others = [node for node in survivors if node is not origin]
            self.judge_origin(origin, others)

    def judge_origin(self, origin: Node, survivors: list[Node]) -> None:
        """All have the same of it, but for what came before they were known."""
        last = max((node.got.get(origin.name, [0])[-1] for node in survivors), default=0)
        for node in survivors:
            got = node.got.get(origin.name, [])
            knew = origin.knew.get(node.name)
            if got:
                assert got[-1] == last, f"{node.name} has {origin.name}'s up to {got[-1]} of {last}"
            if knew is None:
                continue
            wanted = [one for one in origin.sent if knew < one <= max(last, origin.claimed)]
            assert wanted == [one for one in got if one > knew], (
                f"{node.name} has {got} of {origin.name}'s {wanted}, {origin.claimed} went round"
            )
