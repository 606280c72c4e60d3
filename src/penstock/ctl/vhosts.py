"""Virtual hosts, their limits and tags, and tracing."""

from typing import Any, Final

from penstock.client.management import path_of
from penstock.ctl.call import Call
from penstock.ctl.faults import DATA, UNAVAILABLE, Fault, Invalid, Refused
from penstock.ctl.output import Facts, Table, Term, as_json
from penstock.ctl.words import columns_of, must_enter, object_of

VHOST_COLUMNS: Final = (
    "name",
    "description",
    "tags",
    "default_queue_type",
    "tracing",
    "cluster_state",
)
VHOST_LIMITS: Final = (
    "max-connections",
    "max-queues",
    "max-memory-bytes",
    "max-disk-bytes",
    "max-publish-rate",
)
"""RabbitMQ's two, and Penstock's budgets (``broker/rules/budget.py``)."""


def must_exist(call: Call, vhost: str, code: int = UNAVAILABLE) -> None:
    if not call.node.has_vhost(vhost):
        raise Refused(f'Virtual host "{vhost}" does not exist', code)


def add_vhost(call: Call) -> None:
    (name,) = call.take(1)
    call.say(f'Adding vhost "{name}" ...')
    wanted: dict[str, object] = {}
    if "description" in call.options:
        wanted["description"] = call.text("description")
    if "tags" in call.options:
        wanted["tags"] = call.text("tags")
    if "default-queue-type" in call.options:
        wanted["default_queue_type"] = call.text("default-queue-type")
    call.node.put(path_of("vhosts", name), wanted)


def delete_vhost(call: Call) -> None:
    (name,) = call.take(1)
    call.say(f'Deleting vhost "{name}" ...')
    if not call.node.delete(path_of("vhosts", name)):
        raise Fault(DATA, f"Virtual host '{name}' does not exist")


def list_vhosts(call: Call) -> Table:
    columns = columns_of(call, VHOST_COLUMNS, ("name",))
    call.say("Listing vhosts ...")
    rows = [[_cell(vhost, column) for column in columns] for vhost in call.node.get("/api/vhosts")]
    return Table(columns, rows)


def _cell(vhost: dict[str, Any], column: str) -> object:
    found = vhost.get(column, "")
    return [Term(tag) for tag in found] if column == "tags" else found


def set_vhost_tags(call: Call) -> None:
    name, *tags = call.take(1, 1000)
    call.say(f'Setting tags for virtual host "{name}" to [{", ".join(tags)}] ...')
    must_exist(call, name, DATA)
    call.node.put(path_of("vhosts", name), {"tags": ",".join(tags)})


def restart_vhost(call: Call) -> None:
    call.take(0)
    call.say(f"Trying to restart vhost '{call.vhost}' on node '{call.node.name}' ...")
    must_exist(call, call.vhost)
    raise Refused(
        "a virtual host of Penstock is not restarted by itself: a damaged queue is stopped alone"
        " and says why (`penstock queue show`)"
    )


def trace_on(call: Call) -> str:
    call.take(0)
    call.say(f'Starting tracing for vhost "{call.vhost}" ...')
    _trace(call, on=True)
    return f"Trace enabled for vhost {call.vhost}"


def trace_off(call: Call) -> str:
    call.take(0)
    call.say(f'Stopping tracing for vhost "{call.vhost}" ...')
    _trace(call, on=False)
    return f"Trace disabled for vhost {call.vhost}"


def _trace(call: Call, *, on: bool) -> None:
    must_exist(call, call.vhost)  # else a slip in the name would make a new one
    call.node.put(path_of("vhosts", call.vhost), {"tracing": on})


# -- limits ----------------------------------------------------------------------------------


def set_vhost_limits(call: Call) -> None:
    (definition,) = call.take(1)
    call.say(f'Setting vhost limits to "{definition}" for vhost "{call.vhost}" ...')
    limits = object_of(definition, UNAVAILABLE)
    for limit, value in limits.items():
        if limit not in VHOST_LIMITS:
            shown = ",".join(f'{{<<"{key}">>,{one}}}' for key, one in limits.items())
            raise Refused(
                f"Validation failed\n\nUnrecognised terms [{shown}] in limits\n", UNAVAILABLE
            )
        if not isinstance(value, int) or isinstance(value, bool):
            raise Refused(f"{limit} should be number, actually was {value}", UNAVAILABLE)
    must_enter(call, call.vhost)
    for limit, value in limits.items():
        call.node.put(path_of("vhost-limits", call.vhost, limit), {"value": value})


def clear_vhost_limits(call: Call) -> None:
    call.take(0)
    call.say(f'Clearing vhost "{call.vhost}" limits ...')
    found = call.node.found(path_of("vhost-limits", call.vhost))
    limits = found[0]["value"] if found else {}
    if not limits:
        raise Refused("Parameter does not exist", UNAVAILABLE)
    for limit in limits:
        call.node.delete(path_of("vhost-limits", call.vhost, limit))


def list_vhost_limits(call: Call) -> object:
    call.take(0)
    if call.is_set("global"):
        if "vhost" in call.options:
            raise Invalid("Bad argument: --global and --vhost exclude each other")
        call.say("Listing limits for all vhosts ...")
        found = call.node.get("/api/vhost-limits")
        return Table(("vhost", "limits"), [(one["vhost"], as_json(one["value"])) for one in found])
    call.say(f'Listing limits for vhost "{call.vhost}" ...')
    must_enter(call, call.vhost)
    found = call.node.get(path_of("vhost-limits", call.vhost))
    limits = found[0]["value"] if found else {}
    text = as_json(limits, sort=True) if limits else ""
    return Facts(text, {"node": call.node.name, "result": "ok", "value": text})
