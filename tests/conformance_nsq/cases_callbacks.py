"""What a server tells others by itself: questions to an AUTH service, pushes to a statsd."""

from tests.conformance_nsq.case import World, case


@case("auth")
def what_the_service_is_asked(w: World) -> None:
    assert w.place.auth is not None
    a = w.client()
    secret = w.name("secret")
    a.send("AUTH", secret.encode())
    a.fate()
    asked = w.place.auth.asked(secret)
    for path, query, accept in asked:
        w.say(f"{path} {sorted(query.items())} {accept}")


@case("statsd", slow=True)
def what_is_pushed(w: World) -> None:
    assert w.place.statsd is not None
    t = w.name("t")
    a = w.subscriber(t, "c", rdy=2)
    w.http_quietly("POST", f"/channel/create?topic={t}&channel=d")
    w.put(t, b"12345", b"678")
    one, two = w.got(a, count=2)
    a.settle("FIN", one)
    a.settle("REQ", two, 60_000)
    w.barrier(a)
    lines = w.place.statsd.lines(4.6)
    about = [line for line in lines if f".{t}." in line]
    # A counter is pushed as what was added since, so one is there with its sum and with zeros.
    told: dict[str, set[str]] = {}
    for line in about:
        name, _, value = line.partition(":")
        told.setdefault(name, set()).add(value)
    for name in sorted(told):
        most = max(told[name], key=lambda value: int(value.split("|")[0]))
        w.say(f"{name}: {most}")
    memory = {line.partition(":")[0] for line in lines if ".mem." in line}
    w.say(f"of memory: {sorted(memory)}")
