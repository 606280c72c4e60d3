"""Super streams: making one with its partitions, and deleting it with them."""

import re
from typing import Final

from penstock.client.requests import REQUESTS
from penstock.ctl.call import Call
from penstock.ctl.faults import Invalid, Refused

SIZE: Final = re.compile(r"([0-9]{1,18})(?:([kmgtp])(i?)b?)?", re.IGNORECASE)
"""As RabbitMQ 4 has it: k is 1000, ki is 1024."""
AGE: Final = re.compile(
    r"\+?P(?:(\d+)Y)?(?:(\d+)M)?(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+)S)?)?", re.ASCII
)
UNITS_S: Final = (365 * 86_400, 30 * 86_400, 86_400, 3600, 60, 1)
LOCATORS: Final = ("client-local", "balanced", "random", "least-leaders")
SIZES: Final = ("max-length-bytes", "stream-max-segment-size-bytes")
BAD_SIZE: Final = "Invalid value for --{name}, valid example values: 100gb, 50mb"
BAD_AGE: Final = (
    "Invalid value for --max-age, the value must a ISO 8601 duration, e.g. e.g. PT10M30S for 10"
    " minutes 30 seconds, P5DT8H for 5 days 8 hours."
)
BAD_LOCATOR: Final = "Invalid value for --leader-locator, valid values are client-local, balanced."
BAD_SIZE_OF_CLUSTER: Final = "Invalid value for --initial-cluster-size, the value must be positive."
EITHER: Final = "Specify --partitions or --binding-keys, not both."


def add_super_stream(call: Call) -> str:
    (name,) = call.take(1)
    given = _partitions(call) | {"arguments": _arguments(call)}
    call.say("Adding a super stream...")
    path = REQUESTS["add_super_stream"].path_of({"vhost": call.vhost, "name": name})
    answer = call.node.ask("PUT", path, given)
    if not answer.ok:
        raise Refused(answer.reason() or f"HTTP status {answer.status}")
    return f"Super stream {name} has been created"


def delete_super_stream(call: Call) -> str:
    (name,) = call.take(1)
    call.say("Deleting a super stream...")
    if call.do("delete_super_stream", name=name).status == 404:
        raise Refused("stream_not_found")
    return f"Super stream {name} has been deleted"


def _partitions(call: Call) -> dict[str, object]:
    """``routing-keys`` is the older name of binding keys."""
    names = [name for name in ("binding-keys", "routing-keys") if name in call.options]
    if len(names) == 2:
        raise Invalid("Specify --binding-keys only.")
    if names and "partitions" in call.options:
        raise Invalid(EITHER)
    if names:
        return {"binding-keys": call.text(names[0])}
    partitions = call.number("partitions", 3)
    if partitions < 1:
        raise Invalid("The partition number must be greater than 0")
    return {"partitions": partitions}


def _arguments(call: Call) -> dict[str, object]:
    found: dict[str, object] = {}
    for name in filter(call.options.__contains__, SIZES):
        size = SIZE.fullmatch(call.text(name))
        if size is None:
            raise Invalid(BAD_SIZE.format(name=name))
        power = "kmgtp".index(size[2].lower()) + 1 if size[2] else 0
        found[name] = int(size[1]) * int((1024 if size[3] else 1000) ** power)
    if "max-age" in call.options:
        age = AGE.fullmatch(call.text("max-age"))
        if age is None:
            raise Invalid(BAD_AGE)
        parts = [int(part or 0) for part in age.groups()]
        found["max-age"] = f"{sum(map(int.__mul__, parts, UNITS_S))}s"
    if "leader-locator" in call.options:
        if call.text("leader-locator") not in LOCATORS:
            raise Invalid(BAD_LOCATOR)
        found["queue-leader-locator"] = call.text("leader-locator")
    if "initial-cluster-size" in call.options:
        if call.number("initial-cluster-size", 0) < 1:
            raise Invalid(BAD_SIZE_OF_CLUSTER)
        found["initial-cluster-size"] = call.number("initial-cluster-size", 0)
    return found
