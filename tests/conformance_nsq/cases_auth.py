"""AUTH: when it must be said, what it answers, and what a secret's rights allow."""

import time

from tests.conformance_nsq.case import World, case


def _authed(w: World, secret: str, name: str = "A") -> object:
    a = w.client(name)
    a.ask("AUTH", secret.encode())
    return a


@case("auth")
def it_is_announced(w: World) -> None:
    a = w.client()
    a.identify(feature_negotiation=True)


@case("auth")
def it_comes_first(w: World) -> None:
    t = w.name("t")
    for line in (f"SUB {t} c", f"PUB {t}", f"MPUB {t}", f"DPUB {t} 1"):
        a = w.client()
        body = None if line.startswith("SUB") else b"\0\0\0\1\0\0\0\1x"
        a.send(line, body)
        a.fate()
    for line in ("RDY 1", "FIN 0123456789abcdef", "CLS"):
        a = w.client()
        a.send(line)
        a.fate()
    a = w.client()
    a.send("NOP")
    a.ask("AUTH", b"all")


@case("auth")
def answers(w: World) -> None:
    for secret in ("all", "subscribe", "topic"):
        _authed(w, secret)
    for secret in ("unknown", "none", "no-ttl", "wrong-permission", "wrong-regex"):
        a = w.client()
        a.send("AUTH", secret.encode())
        a.fate()


@case("auth")
def wrong_words_and_sizes(w: World) -> None:
    a = w.client()
    a.send("AUTH and more", b"all")
    a.fate()
    for size in (b"\0\0\0\0", b"\xff\xff\xff\xff", b"\0\x50\0\1"):
        a = w.client()
        a.send_raw(b"AUTH\n" + size, f"AUTH with size {size!r}")
        a.fate()
    a = w.client()
    a.send_raw(b"AUTH\n\0\0\0\5al", "half a secret")
    a.finish_sending()
    a.fate()
    a = w.client()
    a.send_raw(b"AUTH\n\0\0", "half a size")
    a.finish_sending()
    a.fate()


@case("auth")
def twice(w: World) -> None:
    a = w.client()
    a.ask("AUTH", b"all")
    a.send("AUTH", b"all")
    a.fate()


@case("auth")
def after_subscribing(w: World) -> None:
    a = w.client()
    a.ask("AUTH", b"all")
    a.ask(f"SUB {w.name('t')} c")
    a.send("AUTH", b"all")
    a.fate()


@case("auth")
def after_identify(w: World) -> None:
    a = w.client()
    a.identify(client_id="me", user_agent="u/1")
    a.ask("AUTH", b"all")
    a.identify(client_id="me")
    a.ask(f"SUB {w.name('t')} c")


@case("auth")
def rights_of_a_subscriber(w: World) -> None:
    t = w.name("t")
    for line in (f"PUB {t}", f"MPUB {t}", f"DPUB {t} 1"):
        a = w.client()
        a.ask("AUTH", b"subscribe")
        a.send(line, b"\0\0\0\1\0\0\0\1x")
        a.fate()
    a = w.client()
    a.ask("AUTH", b"subscribe")
    a.ask(f"SUB {t} c")


@case("auth")
def rights_of_a_publisher(w: World) -> None:
    t = w.name("t")
    a = w.client()
    a.ask("AUTH", b"publish")
    a.ask(f"PUB {t}", b"x")
    a.ask(f"MPUB {t}", b"\0\0\0\1\0\0\0\1x")
    a.ask(f"DPUB {t} 1", b"x")
    a.send(f"SUB {t} c")
    a.fate()


@case("auth")
def rights_by_topic(w: World) -> None:
    open_topic, other = w.name("open"), w.name("other")
    a = w.client()
    a.ask("AUTH", b"topic")
    a.ask(f"PUB {open_topic}", b"x")
    a.send(f"PUB {other}", b"x")
    a.fate()
    a = w.client()
    a.ask("AUTH", b"topic")
    a.send(f"SUB {other} c")
    a.fate()
    a = w.client()
    a.ask("AUTH", b"topic")
    a.ask(f"SUB {open_topic} c")


@case("auth")
def rights_by_channel(w: World) -> None:
    t = w.name("t")
    a = w.client()
    a.ask("AUTH", b"channel")
    a.send(f"PUB {t}", b"x")
    a.fate()
    a = w.client()
    a.ask("AUTH", b"channel")
    a.send(f"SUB {t} c")
    a.fate()
    a = w.client()
    a.ask("AUTH", b"channel")
    a.ask(f"SUB {t} open")


@case("auth")
def expressions_are_searched_for(w: World) -> None:
    t = w.name("open")
    a = w.client()
    a.ask("AUTH", b"unanchored")
    a.ask(f"PUB {t}", b"x")
    a.send("PUB nothing", b"x")
    a.fate()


@case("auth")
def bad_names_are_told_before_rights(w: World) -> None:
    a = w.client()
    a.ask("AUTH", b"topic")
    a.send("PUB a*b", b"x")
    a.fate()


@case("auth", slow=True)
def rights_that_expire_are_asked_for_again(w: World) -> None:
    t = w.name("t")
    a = w.client()
    a.ask("AUTH", b"short")
    a.ask(f"PUB {t}", b"x")
    time.sleep(1.3)
    a.send(f"PUB {t}", b"x")
    a.fate()


@case("auth")
def http_is_not_asked(w: World) -> None:
    w.http("POST", "/pub", b"x", topic=w.name("t"))


@case("auth")
def what_stats_say(w: World) -> None:
    t = w.name("t")
    a = w.client()
    a.ask("AUTH", b"all")
    a.ask(f"SUB {t} c")
    client = w.topic_stats(t)["channels"][0]["clients"][0]
    w.say(str({key: value for key, value in client.items() if key.startswith("auth")}))
