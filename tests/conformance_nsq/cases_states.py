"""Which command may be said when, with how many words, and what a wrong one costs."""

from tests.conformance_nsq.case import World, case

NO_ID = "0123456789abcdef"


def _fresh(w: World, *lines: str) -> None:
    """Each line on a connection of its own that has said the magic word only."""
    for line in lines:
        a = w.client()
        a.send(line)
        a.fate()


def _subscribed(w: World, *lines: str) -> None:
    """Each line on a connection of its own that is subscribed."""
    for line in lines:
        a = w.subscriber(w.name("t"), "c")
        a.send(line)
        a.fate(1.0)
        a.close_socket()


@case()
def magic_words(w: World) -> None:
    for word in (b"  V1", b"  V3", b"V2  ", b"GET ", b"\0\0\0\0", b"    "):
        a = w.raw()
        a.send_raw(word)
        a.fate()
    a = w.raw()
    a.send_raw(b"  V")
    a.finish_sending()
    a.fate()


@case()
def magic_and_a_command_in_one_go(w: World) -> None:
    a = w.raw()
    a.send_raw(b"  V2PUB x.y\n\0\0\0\1z")
    a.receive()


@case()
def a_magic_word_in_pieces(w: World) -> None:
    a = w.raw()
    for piece in (b" ", b" V", b"2"):
        a.send_raw(piece)
        a.quiet(0.1)
    a.ask(f"PUB {w.name('t')}", b"x")


@case()
def unknown_commands(w: World) -> None:
    _fresh(w, "", " ", "HELLO", "pub x", "Nop", "PING", "REGISTER a b", "identify", "  NOP")
    a = w.client()
    a.send_raw(b"\r\n")
    a.fate()
    a = w.client()
    a.send_raw(b"\xff\xfe\n")
    a.fate()


@case()
def a_line_may_end_with_carriage_return(w: World) -> None:
    a = w.client()
    t = w.name("t")
    a.send_raw(b"PUB %s\r\n\0\0\0\1x" % t.encode(), "PUB with CR LF")
    a.receive()
    a.send_raw(b"NOP\r\n")
    a.send_raw(b"SUB %s c\r\n" % t.encode(), "SUB with CR LF")
    a.receive()


@case()
def spaces_are_separators_one_by_one(w: World) -> None:
    t = w.name("t")
    _fresh(w, f"SUB  {t} c", f"SUB {t}  c", f" SUB {t} c")
    a = w.client()
    a.ask(f"SUB {t} c ")
    a.send("RDY 1 ")
    w.barrier(a)


@case()
def a_line_without_end(w: World) -> None:
    a = w.client()
    a.send_raw(b"x" * 20_000, "20000 bytes without a line's end")
    a.fate()


@case()
def a_line_of_almost_the_limit(w: World) -> None:
    a = w.client()
    a.send_raw(b"NOP" + b" " * 16_000 + b"\n", "NOP with 16000 spaces")
    w.barrier(a)


@case()
def nop(w: World) -> None:
    a = w.client()
    a.send("NOP")
    a.send("NOP with words")
    w.barrier(a)
    b = w.subscriber(w.name("t"), "c", name="B")
    b.send("NOP")
    w.barrier(b)


@case()
def before_subscribing(w: World) -> None:
    _fresh(
        w, "RDY 1", "RDY", f"FIN {NO_ID}", "FIN", f"REQ {NO_ID} 0", "REQ", f"TOUCH {NO_ID}", "TOUCH"
    )
    _fresh(w, "CLS")


@case()
def subscribe_with_wrong_words(w: World) -> None:
    t = w.name("t")
    _fresh(w, "SUB", f"SUB {t}")
    a = w.client()
    a.ask(f"SUB {t} c and more words")


@case()
def names_of_topics(w: World) -> None:
    good = ("a", "A.b_C-9", "x" * 64, "x" * 54 + "#ephemeral", ".", "-")
    for name in good:
        a = w.client()
        a.ask(f"SUB {name} c#ephemeral")
        a.close_socket()
    bad = ("x" * 65, "x" * 55 + "#ephemeral", "#ephemeral", "a#b", "a*", "a/b", "a#ephemeralx")
    for name in (*bad, "ä", "a\tb", "a#EPHEMERAL"):
        _fresh(w, f"SUB {name} c")
    for name in bad:
        w.http_quietly("POST", f"/topic/delete?topic={name}")


@case()
def names_of_channels(w: World) -> None:
    t = w.name("t")
    for name in ("c", "x" * 64, "x" * 54 + "#ephemeral"):
        a = w.client()
        a.ask(f"SUB {t} {name}")
    bad = ("x" * 65, "x" * 55 + "#ephemeral", "#ephemeral", "a#b", "a*", "a/b", "c,d")
    _fresh(w, *(f"SUB {t} {name}" for name in bad))


@case()
def subscribe_twice(w: World) -> None:
    _subscribed(w, f"SUB {w.name('t')} c")


@case()
def identify_when_subscribed(w: World) -> None:
    a = w.subscriber(w.name("t"), "c")
    a.send("IDENTIFY", b"{}")
    a.fate()


@case()
def commands_whose_body_is_missing(w: World) -> None:
    """In a state in which they are refused anyway."""
    _subscribed(w, "IDENTIFY", "AUTH")


@case()
def subscribe_without_heartbeats(w: World) -> None:
    a = w.client(heartbeat_interval=-1)
    a.ask(f"SUB {w.name('t')} c")
    a.fate()


@case()
def publish_without_heartbeats(w: World) -> None:
    a = w.client(heartbeat_interval=-1)
    a.ask(f"PUB {w.name('t')}", b"x")


@case()
def ready_counts(w: World) -> None:
    for count in ("0", "1", "2500", "00001", ""):
        a = w.subscriber(w.name("t"), "c")
        a.send(f"RDY {count}")
        w.barrier(a)
        a.close_socket()
    a = w.subscriber(w.name("t"), "c")
    a.send("RDY")
    w.barrier(a)


@case()
def wrong_ready_counts(w: World) -> None:
    _subscribed(w, "RDY 2501", "RDY -1", "RDY x", "RDY 1x", "RDY +1", "RDY 99999999999999999999")


@case("small")
def ready_count_over_a_small_limit(w: World) -> None:
    _subscribed(w, "RDY 6")
    a = w.subscriber(w.name("t"), "c")
    a.send("RDY 5")
    w.barrier(a)


@case()
def wrong_settlements(w: World) -> None:
    _subscribed(w, "FIN", "FIN 1", f"FIN {NO_ID}0", "FIN  ")
    _subscribed(w, "REQ", f"REQ {NO_ID}", "REQ 1 0", f"REQ {NO_ID} x", f"REQ {NO_ID} -1")
    _subscribed(w, f"REQ {NO_ID} ", f"REQ {NO_ID} 1.5")
    _subscribed(w, "TOUCH", "TOUCH 1", f"TOUCH {NO_ID}0")


@case()
def settlements_of_what_is_not_there(w: World) -> None:
    a = w.subscriber(w.name("t"), "c")
    a.ask(f"FIN {NO_ID}")
    a.ask(f"REQ {NO_ID} 0")
    a.ask(f"REQ {NO_ID} 100")
    a.ask(f"TOUCH {NO_ID}")
    a.ask(f"FIN {NO_ID} and more")
    a.ask("FIN zzzzzzzzzzzzzzzz")
    a.ask("FIN ****************")
    a.ask(f"REQ {NO_ID} 99999999")
    w.barrier(a)


@case()
def closing(w: World) -> None:
    t = w.name("t")
    a = w.subscriber(t, "c", rdy=2)
    w.put(t, b"one")
    one = a.receive()
    a.ask("CLS")
    a.send("RDY 5")
    w.put(t, b"two")
    a.quiet()
    a.settle("TOUCH", one)
    a.settle("FIN", one)
    w.barrier(a)
    a.send("NOP")
    a.ask(f"PUB {t}", b"three")
    a.ask(f"FIN {one.id}")
    w.until_channel(t, "c", depth=2)
    w.channel_stats(t, "c")
    a.send("CLS")
    a.fate()


@case()
def closing_refuses(w: World) -> None:
    for line, body in (
        (f"SUB {w.name('t')} c", None),
        ("IDENTIFY", b"{}"),
        ("FIN", None),
        ("REQ x y", None),
        ("RDY x", None),
        ("AUTH", b"secret"),
    ):
        a = w.subscriber(w.name("t"), "c")
        a.ask("CLS")
        a.send(line, body)
        a.fate(1.0)
        a.close_socket()


@case()
def closing_with_words(w: World) -> None:
    a = w.subscriber(w.name("t"), "c")
    a.ask("CLS and more")


@case()
def publishing_while_subscribed(w: World) -> None:
    a = w.subscriber(w.name("t"), "c")
    a.ask(f"PUB {w.name('u')}", b"x")
    a.ask(f"DPUB {w.name('u')} 100", b"x")
    a.ask(f"MPUB {w.name('u')}", b"\0\0\0\1\0\0\0\1x")


@case()
def authenticating_where_it_is_not_asked_for(w: World) -> None:
    a = w.client()
    a.send("AUTH", b"secret")
    a.fate()
    a = w.client()
    a.send("AUTH and more", b"secret")
    a.fate()
    a = w.subscriber(w.name("t"), "c")
    a.send("AUTH", b"secret")
    a.fate()


@case("small")
def too_many_consumers(w: World) -> None:
    t = w.name("t")
    a = w.subscriber(t, "c")
    b = w.client("B")
    b.ask(f"SUB {t} c")
    b.fate()
    w.subscriber(t, "d", name="C")
    a.close_socket()
    w.until_channel(t, "c", client_count=0)
    d = w.client("D")
    d.ask(f"SUB {t} c")


@case()
def a_protocol_error_ends_only_its_connection(w: World) -> None:
    t = w.name("t")
    a, b = w.subscriber(t, "c", rdy=1), w.client("B")
    b.send("NONSENSE")
    b.fate()
    w.put(t, b"still here")
    a.receive()
