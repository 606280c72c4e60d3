"""Policies, operator policies, and the parameters of a virtual host."""

from penstock.ctl.call import Call
from penstock.ctl.output import Table, as_json
from penstock.ctl.words import json_of, must_enter


def set_policy(call: Call) -> None:
    _set(call, "policy", "all")


def set_operator_policy(call: Call) -> None:
    _set(call, "operator policy override", "queues")


def _set(call: Call, what: str, apply_to: str) -> None:
    name, pattern, definition = call.take(3)
    priority = call.number("priority", 0)
    call.say(
        f'Setting {what} "{name}" for pattern "{pattern}" to "{definition}" with priority'
        f' "{priority}" for vhost "{call.vhost}" ...'
    )
    parsed = json_of(definition)
    must_enter(call, call.vhost)
    wanted = {"pattern": pattern, "definition": parsed, "priority": priority}
    wanted["apply-to"] = call.text("apply-to", apply_to)
    call.do(call.verb, name=name, **wanted)


def list_parameters(call: Call) -> Table:
    call.take(0)
    call.say(f'Listing runtime parameters for vhost "{call.vhost}" ...')
    must_enter(call, call.vhost)
    found = [one for one in call.node.get("/api/parameters") if one["vhost"] == call.vhost]
    rows = [(one["component"], one["name"], as_json(one["value"])) for one in found]
    return Table(("component", "name", "value"), rows, empty_line=True)
