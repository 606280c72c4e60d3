"""Policies, operator policies, and the parameters of a virtual host."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from penstock.client.management import path_of
from penstock.ctl.call import Call, json_of, must_enter
from penstock.ctl.faults import DATA, UNAVAILABLE, Fault, Refused
from penstock.ctl.output import Facts, Table, as_json

COLUMNS: Final = ("vhost", "name", "pattern", "apply-to", "definition", "priority")
MIRRORING: Final = "ha-mode"

Policy = Mapping[str, Any]


def set_policy(call: Call) -> None:
    is_operator = call.verb == "set_operator_policy"
    what, apply_to = ("operator policy override", "queues") if is_operator else ("policy", "all")
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
    call.say(f'Listing runtime parameters for vhost "{call.vhost}" ...')
    must_enter(call, call.vhost)
    found = [one for one in call.node.get("/api/parameters") if one["vhost"] == call.vhost]
    rows = [(one["component"], one["name"], as_json(one["value"])) for one in found]
    return Table(("component", "name", "value"), rows, empty_line=True)


# -- which policies -----------------------------------------------------------------------------


def list_mirroring(call: Call) -> Table:
    kind = "operator policies" if "operator" in call.verb else "policies"
    call.say(f"Listing {kind} with classic queue mirroring ...")
    found = _mirroring(call, kind)
    return _policies(found)


def check_mirroring(call: Call) -> object:
    call.say("Checking if cluster has any classic queue mirroring policy ...")
    names = [
        str(one["name"])
        for kind in ("policies", "operator policies")
        for one in _mirroring(call, kind)
    ]
    if names:
        raise Refused(
            f"Cluster reported policies enabling classic queue mirroring: {', '.join(names)}",
            UNAVAILABLE,
        )
    text = "Cluster reported no policies that enable classic queue mirroring"
    return Facts(text, {"result": "ok"})


def _mirroring(call: Call, kind: str) -> list[Policy]:
    found = call.node.get(f"/api/{kind.replace(' ', '-')}")
    return [one for one in found if MIRRORING in one["definition"]]


def list_policies_that_match(call: Call) -> Table:
    """The one in force first: of several the one of the highest priority is."""
    (name,) = call.take(1)
    kind = call.text("object-type", "queue")
    call.say(f"Listing policies that match {kind} '{name}' in vhost '{call.vhost}' ...")
    path = "exchanges" if kind == "exchange" else "queues"
    found = call.node.found(path_of(path, call.vhost, name) + "?columns=type")
    if found is None:
        raise Fault(DATA, "Object (queue, stream, exchange, etc) was not found")
    own = (path,) if path == "exchanges" else (path, f"{found['type']}_queues")
    rows = [
        one
        for one in call.do("list_policies").json()
        if one["apply-to"] in ("all", *own) and re.search(one["pattern"], name)
    ]
    return _policies(sorted(rows, key=lambda one: -int(one["priority"])))


def _policies(found: Sequence[Policy]) -> Table:
    cells = [
        [as_json(one[column]) if column == "definition" else one[column] for column in COLUMNS]
        for one in found
    ]
    return Table(COLUMNS, cells)
