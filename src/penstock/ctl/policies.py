"""Policies, operator policies, and parameters of every kind."""

from typing import Any, Final

from penstock.client.management import path_of
from penstock.ctl.call import Call
from penstock.ctl.faults import UNAVAILABLE, Refused
from penstock.ctl.output import Table, as_json
from penstock.ctl.words import json_of, must_enter

COLUMNS: Final = ("vhost", "name", "pattern", "apply-to", "definition", "priority")
APPLY_TO: Final = ("queues", "exchanges", "all")


def set_policy(call: Call) -> None:
    _set(call, "policies", "policy", "all")


def set_operator_policy(call: Call) -> None:
    _set(call, "operator-policies", "operator policy override", "queues")


def _set(call: Call, kind: str, what: str, apply_to: str) -> None:
    name, pattern, definition = call.take(3)
    priority = call.text("priority", "0")
    call.say(
        f'Setting {what} "{name}" for pattern "{pattern}" to "{definition}" with priority'
        f' "{priority}" for vhost "{call.vhost}" ...'
    )
    parsed = json_of(definition)
    must_enter(call, call.vhost)
    wanted = {
        "pattern": pattern,
        "definition": parsed,
        "priority": int(priority) if priority.lstrip("-").isdecimal() else priority,
        "apply-to": call.text("apply-to", apply_to),
    }
    call.node.put(path_of(kind, call.vhost, name), wanted)


def clear_policy(call: Call) -> None:
    (name,) = call.take(1)
    call.say(f'Clearing policy "{name}" on vhost "{call.vhost}" ...')
    _clear(call, "policies", name)


def clear_operator_policy(call: Call) -> None:
    (name,) = call.take(1)
    call.say(f'Clearing operator policy "{name}" on vhost "{call.vhost}" ...')
    _clear(call, "operator-policies", name)


def _clear(call: Call, kind: str, name: str) -> None:
    if not call.node.delete(path_of(kind, call.vhost, name)):
        raise Refused("Parameter does not exist", UNAVAILABLE)


def list_policies(call: Call) -> Table:
    call.take(0)
    call.say(f'Listing policies for vhost "{call.vhost}" ...')
    return _list(call, "policies")


def list_operator_policies(call: Call) -> Table:
    call.take(0)
    call.say(f'Listing operator policy overrides for vhost "{call.vhost}" ...')
    return _list(call, "operator-policies")


def _list(call: Call, kind: str) -> Table:
    must_enter(call, call.vhost)
    rows = [_row(one) for one in call.node.get(path_of(kind, call.vhost))]
    return Table(COLUMNS, rows, empty_line=True)


def _row(policy: dict[str, Any]) -> list[object]:
    return [
        as_json(policy[column], sort=True) if column == "definition" else policy[column]
        for column in COLUMNS
    ]


# -- parameters --------------------------------------------------------------------------------


def set_parameter(call: Call) -> None:
    component, name, value = call.take(3)
    call.say(
        f'Setting runtime parameter "{name}" for component "{component}" to "{value}" in vhost'
        f' "{call.vhost}" ...'
    )
    parsed = json_of(value)
    must_enter(call, call.vhost)
    call.node.put(path_of("parameters", component, call.vhost, name), {"value": parsed})


def clear_parameter(call: Call) -> None:
    component, name = call.take(2)
    call.say(
        f'Clearing runtime parameter "{name}" for component "{component}" on vhost'
        f' "{call.vhost}" ...'
    )
    if not call.node.delete(path_of("parameters", component, call.vhost, name)):
        raise Refused("Parameter does not exist", UNAVAILABLE)


def list_parameters(call: Call) -> Table:
    call.take(0)
    call.say(f'Listing runtime parameters for vhost "{call.vhost}" ...')
    must_enter(call, call.vhost)
    found = [one for one in call.node.get("/api/parameters") if one["vhost"] == call.vhost]
    rows = [(one["component"], one["name"], as_json(one["value"])) for one in found]
    return Table(("component", "name", "value"), rows, empty_line=True)


def set_global_parameter(call: Call) -> None:
    name, value = call.take(2)
    call.say(f'Setting global runtime parameter "{name}" to "{value}" ...')
    call.node.put(path_of("global-parameters", name), {"value": json_of(value)})


def clear_global_parameter(call: Call) -> None:
    (name,) = call.take(1)
    call.say(f'Clearing global runtime parameter "{name}" ...')
    if not call.node.delete(path_of("global-parameters", name)):
        raise Refused("Parameter does not exist", UNAVAILABLE)


def list_global_parameters(call: Call) -> Table:
    call.take(0)
    call.say("Listing global runtime parameters ...")
    found = call.node.get("/api/global-parameters")
    rows = [(one["name"], as_json(one["value"])) for one in found]
    return Table(("name", "value"), rows, empty_line=True)


def set_cluster_name(call: Call) -> None:
    (name,) = call.take(1)
    call.say(f"Setting cluster name to {name} ...")
    call.node.put("/api/cluster-name", {"name": name})
