"""TLS, snappy and deflate: how each is begun, in which order, and what travels through them."""

import ssl

from tests.conformance_nsq.case import World, case
from tests.helpers.nsq_line import RawNsq


def _context(w: World, own: bool = False) -> ssl.SSLContext:
    directory = w.place.certificates
    context = ssl.create_default_context(cafile=f"{directory}/ca.pem")
    if own:
        context.load_cert_chain(f"{directory}/client.pem", f"{directory}/client.key")
    return context


def _begin(w: World, a: RawNsq, *layers: str, **fields: object) -> None:
    """IDENTIFY with the layers asked for, and each of them begun."""
    names = {"tls": "tls_v1"}
    asked = {names.get(layer, layer): True for layer in layers}
    a.identify(feature_negotiation=True, **asked, **fields)
    for layer in layers:
        if layer == "tls":
            a.begin_tls(_context(w))
        elif layer == "snappy":
            a.begin_snappy()
        else:
            a.begin_deflate()
        a.receive()


def _talk(w: World, a: RawNsq) -> None:
    """Publish and consume through the layers, small and large."""
    t = w.name("t")
    a.ask(f"PUB {t}", b"small")
    a.ask(f"PUB {t}", b"large " * 30_000)
    a.ask(f"SUB {t} c")
    a.send("RDY 5")
    for event in w.got(a, count=2):
        a.settle("FIN", event)
    a.ask("FIN 0123456789abcdef")
    a.send("NONSENSE")
    a.fate()


@case()
def deflate(w: World) -> None:
    for level in (1, 6):
        a = w.client()
        _begin(w, a, "deflate", deflate_level=level)
        _talk(w, a)


@case()
def snappy(w: World) -> None:
    a = w.client()
    _begin(w, a, "snappy")
    _talk(w, a)


@case("tls")
def tls(w: World) -> None:
    a = w.client()
    _begin(w, a, "tls")
    _talk(w, a)


@case("tls")
def tls_and_deflate(w: World) -> None:
    a = w.client()
    a.identify(feature_negotiation=True, tls_v1=True)
    a.begin_tls(_context(w))
    a.receive()
    _talk(w, a)


@case()
def compression_without_negotiation_is_not_begun(w: World) -> None:
    for layer in ("deflate", "snappy"):
        a = w.client()
        a.identify(**{layer: True})
        a.quiet()
        a.ask(f"PUB {w.name('t')}", b"x")


@case("tls")
def tls_without_negotiation_is_not_begun(w: World) -> None:
    a = w.client()
    a.identify(tls_v1=True)
    a.quiet()
    a.ask(f"PUB {w.name('t')}", b"x")


@case("tls")
def tls_may_be_left_out(w: World) -> None:
    a = w.client()
    a.identify(feature_negotiation=True)
    a.ask(f"PUB {w.name('t')}", b"x")


@case("tls")
def what_is_no_handshake(w: World) -> None:
    a = w.client()
    a.identify(feature_negotiation=True, tls_v1=True)
    a.send_raw(b"PUB x\n\0\0\0\1x")
    event = a.receive_quietly()
    w.say(f"the connection ended: {event.kind == 'closed' or a.read_bytes(1, 2) != b'O'}")


@case("tls")
def what_stats_say_of_tls(w: World) -> None:
    t = w.name("t")
    a = w.client()
    _begin(w, a, "tls")
    a.ask(f"SUB {t} c")
    client = w.topic_stats(t)["channels"][0]["clients"][0]
    w.say(f"tls={client['tls']} deflate={client['deflate']} snappy={client['snappy']}")
    w.say(f"fields: {[key for key in client if key.startswith('tls')]}")


@case()
def what_stats_say_of_compression(w: World) -> None:
    for layer in ("deflate", "snappy"):
        t = w.name("t")
        a = w.client()
        _begin(w, a, layer)
        a.ask(f"SUB {t} c")
        client = w.topic_stats(t)["channels"][0]["clients"][0]
        w.say(f"tls={client['tls']} deflate={client['deflate']} snappy={client['snappy']}")


@case("tls-required")
def tls_that_is_required(w: World) -> None:
    t = w.name("t")
    for line in (f"SUB {t} c", "NOP", "RDY 1", "CLS"):
        a = w.client()
        a.send(line)
        a.fate()
    for line in (f"PUB {t}", f"MPUB {t}", f"DPUB {t} 1", "AUTH"):
        a = w.client()
        a.send(line, b"\0\0\0\1\0\0\0\1x")
        a.fate()
    a = w.client()
    a.identify(feature_negotiation=True)
    a.fate(1.0)
    a = w.client()
    a.identify()
    a.fate(1.0)
    a = w.client()
    _begin(w, a, "tls")
    _talk(w, a)


@case("tls-required")
def http_where_tls_is_required(w: World) -> None:
    answer = w.http_quietly("GET", "/ping")
    w.say(f"{answer.status} {sorted(answer.json())}" if answer.status != 200 else "pong")
    answer = w.http_quietly("POST", f"/pub?topic={w.name('t')}", b"x")
    w.say(f"{answer.status} {sorted(answer.json())} {answer.json().get('message')}")


def _https(w: World, own: bool = False) -> None:
    t = w.name("t")
    for method, path, body in (
        ("GET", "/ping", None),
        ("POST", f"/pub?topic={t}", b"x"),
        ("GET", "/nothing", None),
    ):
        answer = w.http_quietly(method, path, body, tls=_context(w, own))
        w.say(f"https {method} {path}: {answer.status} {answer.body.decode()}")
    w.say("the topic has what was published by HTTPS")
    stats = w.http_quietly("GET", f"/stats?format=json&topic={t}", tls=_context(w, own))
    w.say(str(stats.json()["topics"][0]["depth"]))


@case("tls")
def https(w: World) -> None:
    _https(w)


@case("tls-required")
def https_where_tls_is_required(w: World) -> None:
    _https(w)


@case("tls-client")
def https_with_a_certificate(w: World) -> None:
    _https(w, own=True)


@case("tls-client")
def https_without_a_certificate(w: World) -> None:
    try:
        answer = w.http_quietly("GET", "/ping", tls=_context(w))
    except OSError:
        w.say("refused")
    else:
        w.say(f"answered: {answer.status}")


@case("tls-client")
def a_certificate_that_is_required(w: World) -> None:
    a = w.client()
    a.identify(feature_negotiation=True, tls_v1=True)
    a.begin_tls(_context(w, own=True))
    a.receive()
    a.ask(f"PUB {w.name('t')}", b"x")
    b = w.client("B")
    b.identify(feature_negotiation=True, tls_v1=True)
    b.begin_tls(_context(w))
    b.note(f"< {b.receive_quietly().kind}")
