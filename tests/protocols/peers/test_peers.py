"""Links between real loops on this machine: connections, refusals, cuts, restarts, and flow."""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import random
import socket
import ssl
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from penstock.core.errors import SettingInvalid
from penstock.protocols.peers.access import check_secret, read_secret
from penstock.protocols.peers.codec import frames as peer
from penstock.protocols.peers.codec import hello as peer_hello
from penstock.protocols.peers.dialer import PeerDialer
from penstock.protocols.peers.link import Member
from penstock.protocols.peers.peers import STRANGER_LINES_MAX, UNPROVEN_MAX, Peers
from penstock.protocols.peers.session import AHEAD_BYTES
from penstock.runtime.connection import Connection
from penstock.runtime.loop import Loop
from penstock.settings.settings import load_settings
from penstock.tls.options import TlsOptions, tls_between_nodes
from tests.helpers.certificates import MISSING, Authority
from tests.helpers.peer_nodes import (
    ANSWER,
    SECRET,
    CuttingProxy,
    LinkedNode,
    Notes,
    Site,
    quick,
    wait_for,
)

WARNED = "penstock.peers"
SEEDS = int(os.environ.get("PENSTOCK_LINK_SEEDS", "1"))
FIRST = int(os.environ.get("PENSTOCK_LINK_SEED") or random.SystemRandom().randrange(10**9))
FAILED_ONCE: tuple[int, ...] = ()


@pytest.fixture
def site() -> Iterator[Site]:
    with Site() as place:
        yield place


def warnings(caplog: pytest.LogCaptureFixture) -> str:
    return "\n".join(record.getMessage() for record in caplog.records)


def pair(site: Site, **options: object) -> tuple[LinkedNode, LinkedNode]:
    """Connected."""
    a, b = site.add("a", **options), site.add("b", **options)
    site.connect()
    return a, b


def echoes(node: LinkedNode, name: str, payloads: list[bytes]) -> None:
    for payload in payloads:
        node.send(name, payload)
    wait_for(lambda: len(node.owner.answers(name)) >= len(payloads))
    assert node.owner.answers(name) == payloads


# -- being connected -------------------------------------------------------------------------


def test_three_nodes_find_each_other_and_both_ways_work(site: Site) -> None:
    for name in "abc":
        site.add(name)
    site.connect()
    for one, other in itertools.permutations(site.nodes.values(), 2):
        echoes(one, other.member.name, [b"", b"x", one.member.name.encode() * 1000])
    a = site.nodes["a"]
    assert a.owner.told == ["begun b/1", "begun c/1"]
    facts = a.facts("b")
    assert (facts.is_connected, facts.is_caller, facts.connections) == (True, True, 1)
    assert facts.bytes_in > 2000
    assert facts.bytes_out > 2000
    assert not site.nodes["b"].facts("a").is_caller


def test_what_is_sent_before_there_is_a_connection_arrives(site: Site) -> None:
    a, b = site.add("a"), site.add("b")
    b.do(lambda: b.peers.set_members([a.member]))
    b.send("a", b"early")
    site.connect()
    wait_for(lambda: b.owner.answers("a") == [b"early"])


def test_a_unix_socket(site: Site) -> None:
    """Without TLS, also among nodes that have it."""
    options = (None, TlsOptions(ssl.create_default_context()))
    with tempfile.TemporaryDirectory() as directory:
        a = site.add("a", tls=options)
        b = site.add("b", tls=options, unix_path=str(Path(directory) / "peer.sock"))
        site.connect()
        echoes(a, "b", [b"x" * 1_000_000])
        assert os.stat(b.member.unix_path).st_mode & 0o777 == 0o600
        b.close()
        del site.nodes["b"]


def between(certificate: str, key: str, authority: str) -> tuple[TlsOptions, TlsOptions]:
    files = {"certfile": certificate, "keyfile": key, "cacertfile": authority}
    given = {f"cluster_tls_{word}": file for word, file in files.items()}
    found = tls_between_nodes(load_settings(None, {}, given))
    assert found is not None
    return found


@pytest.mark.skipif(MISSING is not None, reason=str(MISSING))
def test_tls(site: Site, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A node with a certificate of another authority is not talked with."""
    authority = Authority(tmp_path)
    files = authority.sign("node", "/CN=node", "IP:127.0.0.1")
    options = between(*files, str(authority.certificate))
    a, _ = pair(site, tls=options)
    echoes(a, "b", [b"x" * 300_000, b"y"])
    other = Authority(tmp_path, "other")
    wrong = between(*other.sign("c", "/CN=c", "IP:127.0.0.1"), str(other.certificate))
    site.add("c", tls=wrong)
    plain = site.add("d")
    with caplog.at_level(logging.WARNING):
        site.tell()
        wait_for(lambda: "TLS handshake" in warnings(caplog))
        wait_for(lambda: "before it had introduced itself" in a.facts("c").last_error)
        wait_for(lambda: "before it had introduced itself" in a.facts("d").last_error)
    assert not a.is_connected("c")
    assert not plain.is_connected("a")


# -- who is refused --------------------------------------------------------------------------


def test_a_wrong_secret_is_refused_and_both_say_so(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    a, b = site.add("a"), site.add("b", secret=b"a secret of somebody else")
    with caplog.at_level(logging.WARNING, WARNED):
        site.tell()
        wait_for(lambda: "secret" in a.facts("b").last_error)
    text = warnings(caplog)
    assert "link to 127.0.0.1:" in text  # b's line: it knows only where the stranger is
    assert "failed: the cluster's secret is another one there" in text
    assert "link to b/1 at 127.0.0.1:" in text
    assert 'it says: "the cluster\'s secret is another one there"' in text
    assert not a.is_connected("b")
    assert not b.is_connected("a")
    a.send("b", b"not for strangers")
    assert b.owner.got == {}


def test_one_who_is_called_and_does_not_know_the_secret_is_refused_too(site: Site) -> None:
    """An impostor at the right address that says yes to everything."""
    a = site.add("a")
    server = socket.create_server(("127.0.0.1", 0))
    fake = Member("b", "1", "127.0.0.1", server.getsockname()[1])
    a.do(lambda: a.peers.set_members([fake]))
    sock, _ = server.accept()
    hello = peer_hello.Hello("test", "b", "1", bytes(32), 5000)
    sock.sendall(peer.preface() + peer.frame(peer.HELLO, hello.encode()))
    sock.sendall(peer.frame(peer.PROOF, bytes(40)))
    wait_for(lambda: "secret" in a.facts("b").last_error)
    assert not a.is_connected("b")
    sock.close()
    server.close()


def test_another_cluster_is_refused(site: Site) -> None:
    a, b = site.add("a"), site.add("b", cluster="other")
    site.tell()
    wait_for(lambda: "this is cluster 'other', not 'test'" in a.facts("b").last_error)
    assert not b.is_connected("a")


def test_another_version_is_refused(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    b = site.add("b")
    with socket.create_connection(("127.0.0.1", b.port)) as sock:
        sock.sendall(peer.preface(2, 7) + bytes(100))
        said = b""
        while data := sock.recv(1000):
            said += data
    assert b"it speaks versions 2 to 7, here 1 to 1" in said


def test_one_who_is_not_named_as_a_member_is_refused_until_it_is(site: Site) -> None:
    a, b = site.add("a"), site.add("b")
    a.do(lambda: a.peers.set_members([b.member]))
    wait_for(lambda: "a/1 is not known as a member here" in a.facts("b").last_error)
    site.connect()
    echoes(a, "b", [b"now"])


@pytest.mark.parametrize("first", [b"AMQP\0\0\x09\x01", b"GET / HTTP/1.1\r\n\r\n", bytes(5000)])
def test_strangers_are_shown_the_door_and_nobody_else_notices(site: Site, first: bytes) -> None:
    a, b = pair(site)
    with socket.create_connection(("127.0.0.1", b.port)) as sock:
        sock.sendall(first)
        sock.settimeout(10)
        with contextlib.suppress(ConnectionError):
            while sock.recv(1000):
                pass
    echoes(a, "b", [b"still here"])


def test_a_stranger_with_ever_new_words_has_few_lines_of_the_log(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    b = site.add("b")
    with caplog.at_level(logging.WARNING, WARNED):
        for number in range(STRANGER_LINES_MAX + 5):
            hello = peer_hello.Hello(f"c{number}", "x", "1", bytes(peer_hello.NONCE_BYTES), 1000)
            said = peer.preface() + peer.frame(peer.HELLO, hello.encode())
            with contextlib.ExitStack() as stack:
                sock = _come_and_say(said, b, stack)
                sock.settimeout(10)
                with contextlib.suppress(ConnectionError):
                    while sock.recv(1000):
                        pass
    assert warnings(caplog).count("refused or failed: this is cluster") == STRANGER_LINES_MAX


def test_those_who_never_introduce_themselves_are_few_and_keep_nobody_out(site: Site) -> None:
    b = site.add("b", limits=quick(handshake_ms=60_000))
    a = site.add("a")
    with contextlib.ExitStack() as stack:
        crowd = [_come_and_say(b"P", b, stack) for _ in range(UNPROVEN_MAX + 10)]
        wait_for(lambda: sum(map(_is_hung_up, crowd)) == 10)
        assert all(map(_is_hung_up, crowd[:10]))  # who came first had the most time
        site.connect()
        echoes(a, "b", [b"let in"])
        assert b.do(lambda: len(b.peers._unproven)) == UNPROVEN_MAX - 1
    wait_for(lambda: not b.do(lambda: b.peers._unproven))


def test_a_byte_now_and_then_does_not_buy_time(site: Site) -> None:
    b = site.add("b", limits=quick(handshake_ms=700))
    with contextlib.ExitStack() as stack:
        sock = _come_and_say(b"P", b, stack)
        began = time.monotonic()
        with contextlib.suppress(ConnectionError):
            for letter in b"STN\0\1\0\1" * 1000:
                time.sleep(0.05)
                sock.sendall(bytes([letter]))
        assert time.monotonic() - began < 5


def _come_and_say(first: bytes, node: LinkedNode, stack: contextlib.ExitStack) -> socket.socket:
    sock = stack.enter_context(socket.create_connection(("127.0.0.1", node.port)))
    sock.sendall(first)
    return sock


def _is_hung_up(sock: socket.socket) -> bool:
    try:
        return sock.recv(1, socket.MSG_DONTWAIT | socket.MSG_PEEK) == b""
    except BlockingIOError:
        return False
    except ConnectionError:
        return True


# -- connections that break ------------------------------------------------------------------


def test_cut_again_and_again_nothing_is_lost_or_doubled() -> None:
    for seed in (*FAILED_ONCE, *range(FIRST, FIRST + SEEDS)):
        print(f"seed {seed}")
        with Site() as site:
            cuts = _talk_over_a_line_that_breaks(site, random.Random(seed))
        print(f"{cuts} cuts")


def _talk_over_a_line_that_breaks(site: Site, rng: random.Random) -> int:
    """How often it broke."""
    a, b = site.add("a"), site.add("b")
    a.owner.mood = b.owner.mood = rng  # what is held when it breaks must come again
    budgets = iter([rng.choice((30, 300, 3_000, 200_000, 600_000)) for _ in range(40)])
    proxy = CuttingProxy(b.port, budgets)
    site.doors["b"] = Member("b", "1", "127.0.0.1", proxy.port)
    site.tell()
    payloads = [rng.randbytes(rng.choice((10, 1000, 200_000, 1_000_000))) for _ in range(25)]
    for payload in payloads:
        a.send("b", payload)
        b.send("a", payload[::-1])
    wait_for(lambda: len(a.owner.answers("b")) + len(b.owner.answers("a")) >= 50, 60)
    assert a.owner.answers("b") == payloads
    assert b.owner.answers("a") == [payload[::-1] for payload in payloads]
    assert proxy.cuts >= 10
    assert a.owner.told == ["begun b/1"]
    assert a.facts("b").resent_count + b.facts("a").resent_count > 0
    proxy.close()
    return proxy.cuts


def test_two_huge_parcels_that_cross_do_not_wait_for_each_other(site: Site) -> None:
    a, b = pair(site)
    size = 24 * 1024 * 1024
    a.send("b", b"a" * size, ANSWER)
    b.send("a", b"b" * size, ANSWER)
    wait_for(lambda: bool(a.owner.got and b.owner.got))
    assert a.owner.answers("b") == [b"b" * size]
    assert b.owner.answers("a") == [b"a" * size]


def test_a_peer_that_says_nothing_is_given_up_and_called_again(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    limits = quick(silence_ms=800)
    a, b = site.add("a", limits=limits), site.add("b", limits=limits)
    proxy = CuttingProxy(b.port, iter(()))
    site.doors["b"] = Member("b", "1", "127.0.0.1", proxy.port)
    site.connect()
    time.sleep(1.2)  # heartbeats keep it
    assert a.facts("b").connections == 1
    with caplog.at_level(logging.WARNING, WARNED):
        proxy.passes = False
        wait_for(lambda: "b/1 is disconnected: it has said nothing for" in warnings(caplog))
        proxy.passes = True
        wait_for(lambda: a.is_connected("b"))
    echoes(a, "b", [b"again"])
    proxy.close()


def test_a_newer_connection_of_the_same_member_wins(site: Site) -> None:
    """The caller lost its connection in a way the other side has not noticed."""
    a, b = site.add("a"), site.add("b")
    proxy = CuttingProxy(b.port, iter(()))
    site.doors["b"] = Member("b", "1", "127.0.0.1", proxy.port)
    site.connect()
    proxy.passes = False
    a.send("b", b"on the way when it broke")
    site.doors["b"] = b.member
    a.do(lambda: a.peers.links["b"].connection.give_up("tried"))  # type: ignore[union-attr]
    site.tell()
    wait_for(lambda: a.owner.answers("b") == [b"on the way when it broke"])
    assert b.facts("a").last_error == "it has called again"
    assert b.facts("a").connections == 2
    proxy.close()


def test_one_who_does_not_read_costs_a_bounded_number_of_bytes(site: Site) -> None:
    limits = quick(silence_ms=60_000, waiting_bytes=8 << 20)
    a, b = site.add("a", limits=limits), site.add("b", limits=limits)
    proxy = CuttingProxy(b.port, iter(()))
    site.doors["b"] = Member("b", "1", "127.0.0.1", proxy.port)
    site.connect()
    proxy.passes = False
    sent = 0
    while not a.do(a.peers.full):
        a.send("b", bytes(100_000), ANSWER)
        sent += 1
    connection = a.do(lambda: a.peers.links["b"].connection)
    assert connection is not None
    carrier = connection.carrier
    assert isinstance(carrier, Connection)
    waiting = a.do(lambda: len(connection.out) + carrier.unsent.nbytes)
    assert waiting < 3 * AHEAD_BYTES  # what else waits is the session's, and counted there
    proxy.passes = True
    wait_for(lambda: len(b.owner.got.get("a", [])) == sent)
    proxy.close()


def test_calls_become_rarer_and_never_come_in_step() -> None:
    calls: list[int] = []
    now = [0]
    refused = SimpleNamespace(
        call=lambda member, answer: (calls.append(now[0]), answer(None, "no"))
    )
    limits = quick(retry_min_ms=100, retry_max_ms=1000)
    peers = Peers(
        cast(Loop, SimpleNamespace(call=None)),
        Member("a", "1"),
        "test",
        SECRET,
        Notes(),
        limits,
        clock=lambda: now[0],
        chance=random.Random(1).random,
    )
    peers._dialer = cast(PeerDialer, refused)
    peers.set_members([Member("b", "1", "somewhere", 1)])
    for now[0] in range(10_000):
        peers.tick(0)
    waits = [after - before for before, after in itertools.pairwise(calls)]
    for wait, longest in zip(waits, [100, 200, 400, 800, *[1000] * 100], strict=False):
        assert longest // 2 <= wait <= longest
    assert len(set(waits[4:])) > 3
    assert peers.facts()[0].last_error == "cannot connect to somewhere:1: no"
    peers.set_members([Member("b", "1", "elsewhere", 1)])
    peers.tick(0)
    assert calls[-1] == now[0]  # at once


# -- members that end ------------------------------------------------------------------------


def test_a_peer_that_comes_back_is_another_member(site: Site) -> None:
    a, b = pair(site)
    echoes(a, "b", [b"first life"])
    b.close(politely=False)
    wait_for(lambda: not a.is_connected("b"))
    a.send("b", b"for the first life only")
    b2 = site.add("b", "2", port=b.port)
    wait_for(lambda: "b/2 answers, called was b/1" in a.facts("b").last_error)
    site.connect()
    assert a.owner.told == ["begun b/1", "ended b/1", "begun b/2"]
    a.owner.got.clear()
    echoes(a, "b", [b"second life"])
    assert b2.owner.got == {"a": [(1, b"second life")]}


def test_who_has_ended_stays_ended(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    a, b = pair(site)
    with caplog.at_level(logging.WARNING, WARNED):
        b.do(lambda: b.peers.set_members([]))
        b.do(lambda: b.peers.set_members([a.member]))
        wait_for(lambda: "a/1 has ended here" in a.facts("b").last_error)
    assert b.owner.told == ["begun a/1", "ended a/1"]
    assert "it has ended here, and must come back as a new member" in warnings(caplog)
    assert b.do(lambda: b.peers.links) == {}


@pytest.mark.parametrize("name", ["a", "b"])
def test_a_node_that_begins_a_new_life_talks_to_those_that_lived_on(site: Site, name: str) -> None:
    """It was cut off alone: its neighbours' lives have not ended, theirs with it have."""
    nodes = dict(zip("ab", pair(site), strict=True))
    one, other = nodes.pop(name), *nodes.values()
    echoes(one, other.member.name, [b"first life"])
    one.owner.got.clear()
    former = one.member
    one.member = Member(name, "2", former.host, former.port)
    one.do(lambda: one.peers.begin_life(one.member))
    assert one.do(lambda: one.peers.links) == {}
    site.connect()
    echoes(one, other.member.name, [b"second life"])
    assert other.owner.told == [f"begun {former}", f"ended {former}", f"begun {name}/2"]


def test_a_node_that_stops_says_so(site: Site) -> None:
    a, b = pair(site)
    b.close()
    del site.nodes["b"]
    wait_for(lambda: not a.is_connected("b"))
    wait_for(lambda: "cannot connect" in a.facts("b").last_error)


def test_a_node_that_stops_first_says_what_it_has_to_say(site: Site) -> None:
    a, b = pair(site)
    parcels = [bytes([number]) * 1_000_000 for number in range(20)]
    b.do(lambda: [b.peers.send("a", ANSWER, parcel) for parcel in parcels])
    b.close()
    del site.nodes["b"]
    assert a.owner.answers("b") == parcels


# -- flow ------------------------------------------------------------------------------------


def test_what_an_owner_does_not_take_fills_the_senders_link_and_nothing_else(site: Site) -> None:
    limits = quick(waiting_bytes=1 << 20, silence_ms=800)
    a, b = pair(site, limits=limits)
    b.owner.takes = False
    sent = 0
    while not a.do(a.peers.full):
        a.send("b", b"x" * 50_000, ANSWER)
        sent += 1
    assert a.do(a.peers.full) == ["b"]
    assert sent < 25
    wait_for(lambda: b.facts("a").held_bytes > 500_000)
    b.send("a", b"the other way")  # is answered, but the answer waits with the rest
    wait_for(lambda: a.owner.got == {"b": [(1, b"the other way")]})
    time.sleep(1.2)
    assert a.is_connected("b")  # heartbeats went on
    assert a.do(a.peers.full) == ["b"]
    assert not a.do(lambda: a.peers.has_room("b"))
    assert a.do(a.peers.waiting_bytes) > 1 << 20
    b.owner.takes = True
    wait_for(lambda: len(b.owner.got.get("a", [])) == sent + 1)
    wait_for(lambda: a.do(lambda: a.peers.has_room("b")))
    assert b.facts("a").held_bytes == 0
    wait_for(lambda: a.do(a.peers.waiting_bytes) == 0)


def test_clients_may_be_kept_out_while_nodes_are_let_in(site: Site) -> None:
    a, b = site.add("a"), site.add("b")
    b.do(lambda: b.loop.stop_listening(to_peers=False))
    site.connect()
    echoes(a, "b", [b"let in"])


def test_an_owner_that_fails_stops_its_node_and_no_other(site: Site) -> None:
    a, b = pair(site)
    b.owner.peers = None
    a.send("b", b"x")
    wait_for(lambda: b.error is not None)
    assert isinstance(b.error, AssertionError)
    b.error = None
    del site.nodes["b"]
    wait_for(lambda: b._thread.is_alive() is False)
    b.forget()
    wait_for(lambda: not a.is_connected("b"))


# -- secrets ---------------------------------------------------------------------------------


def test_a_secret_in_a_file_is_for_its_owner_only(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.write_bytes(b"0123456789abcdef\n")
    path.chmod(0o640)
    with pytest.raises(SettingInvalid, match=r"may be read or changed by others \(mode 0640\)"):
        read_secret("cluster_secret_file", str(path))
    path.chmod(0o600)
    assert read_secret("cluster_secret_file", str(path)) == b"0123456789abcdef"
    with pytest.raises(SettingInvalid, match="No such file"):
        read_secret("cluster_secret_file", str(tmp_path / "none"))
    with pytest.raises(SettingInvalid, match="a secret of 5 bytes, at least 16"):
        check_secret("cluster_secret", b"short")


def test_half_of_what_tls_needs_is_refused() -> None:
    """Somebody who names a key believes that there is TLS."""
    assert tls_between_nodes(load_settings(None, {}, {})) is None
    half = load_settings(None, {}, {"cluster_tls_keyfile": "k.pem"})
    with pytest.raises(SettingInvalid, match="not set: cluster_tls_certfile"):
        tls_between_nodes(half)
    whole = {f"cluster_tls_{what}": "none.pem" for what in ("certfile", "keyfile", "cacertfile")}
    with pytest.raises(SettingInvalid, match="No such file"):
        tls_between_nodes(load_settings(None, {}, whole))
