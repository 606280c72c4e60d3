"""Virtual hosts, their limits and tags, and tracing."""

from typing import Final

from penstock.client.management import path_of
from penstock.ctl.call import Call, check_limits, must_enter, object_of
from penstock.ctl.faults import DATA, UNAVAILABLE, Fault, Invalid, Refused
from penstock.ctl.output import Facts, Table, as_json

VHOST_LIMITS: Final = (
    *("max-connections", "max-queues", "max-memory-bytes", "max-disk-bytes", "max-publish-rate"),
    "max-channels",
)
"""RabbitMQ's two, and Penstock's (``broker/rules/budget.py``)."""
PROTECTED: Final = (
    "Cannot delete this virtual host: it is protected from deletion. To lift the protection,"
    " inspect and update its metadata"
)


def must_exist(call: Call, vhost: str, code: int = UNAVAILABLE) -> None:
    if not call.node.has_vhost(vhost):
        raise Refused(f'Virtual host "{vhost}" does not exist', code)


def add_vhost(call: Call) -> None:
    (name,) = call.take(1)
    call.say(f'Adding vhost "{name}" ...')
    call.do("add_vhost", **_metadata(call), vhost=name)


def update_vhost_metadata(call: Call) -> None:
    (name,) = call.take(1)
    call.say(f'Updating metadata of vhost "{name}" ...')
    must_enter(call, name)
    call.do("add_vhost", **_metadata(call), vhost=name)


def protect(call: Call) -> None:
    (name,) = call.take(1)
    on = call.verb == "enable_vhost_deletion_protection"
    what = f'Protecting virtual host "{name}" from removal'
    if not on:
        what = f'Removing deletion protection from virtual host "{name}"'
    call.say(f"{what} by updating its metadata...")
    must_enter(call, name)
    call.do("add_vhost", vhost=name, protected_from_deletion=on)


def _metadata(call: Call) -> dict[str, str]:
    asked = ("description", "tags", "default-queue-type", "protected-from-deletion")
    return {one.replace("-", "_"): call.text(one) for one in asked if one in call.options}


def delete_vhost(call: Call) -> None:
    (name,) = call.take(1)
    call.say(f'Deleting vhost "{name}" ...')
    answer = call.node.ask("DELETE", path_of("vhosts", name))
    if answer.status == 404:
        raise Fault(DATA, f"Virtual host '{name}' does not exist")
    if answer.status == 412:
        raise Refused(PROTECTED, DATA)
    call.node.must(answer)


def set_vhost_tags(call: Call) -> None:
    name, *tags = call.take(1, 1000)
    call.say(f'Setting tags for virtual host "{name}" to [{", ".join(tags)}] ...')
    must_exist(call, name, DATA)
    call.do("add_vhost", vhost=name, tags=",".join(tags))


def restart_vhost(call: Call) -> None:
    call.say(f"Trying to restart vhost '{call.vhost}' on node '{call.node.name}' ...")
    must_exist(call, call.vhost)
    raise Refused(
        "a virtual host of Penstock is not restarted by itself: a damaged queue is stopped alone"
        " and says why (`penstock queue show`)"
    )


def trace(call: Call) -> str:
    says, done = ("Starting", "enabled") if call.verb == "trace_on" else ("Stopping", "disabled")
    call.say(f'{says} tracing for vhost "{call.vhost}" ...')
    must_exist(call, call.vhost)  # else a slip in the name would make a new one
    call.do("add_vhost", tracing=done == "enabled")
    return f"Trace {done} for vhost {call.vhost}"


# -- limits ----------------------------------------------------------------------------------


def set_vhost_limits(call: Call) -> None:
    (definition,) = call.take(1)
    call.say(f'Setting vhost limits to "{definition}" for vhost "{call.vhost}" ...')
    limits = object_of(definition)
    unknown = "Validation failed\n\nUnrecognised terms {terms} in limits\n"
    check_limits(limits, VHOST_LIMITS, unknown)
    must_enter(call, call.vhost)
    for limit, value in limits.items():
        call.do("set_vhost_limits", limit=limit, value=value)


def clear_vhost_limits(call: Call) -> None:
    call.say(f'Clearing vhost "{call.vhost}" limits ...')
    found = call.node.found(path_of("vhost-limits", call.vhost))
    limits = found[0]["value"] if found else {}
    if not limits:
        raise Refused("Parameter does not exist", UNAVAILABLE)
    for limit in limits:
        call.do("clear_vhost_limits", limit=limit)


def list_vhost_limits(call: Call) -> object:
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
