"""Words of a command line that mean more than their letters: JSON, and where a setting holds."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from penstock.client.management import path_of
from penstock.ctl.call import Call
from penstock.ctl.faults import DATA, NO_USER, UNAVAILABLE, Fault, Invalid, Refused

NOT_JSON = "JSON decoding error. Reason: badarg"


def json_of(text: str, code: int = UNAVAILABLE) -> Any:
    """Raises Refused with RabbitMQ's words."""
    try:
        return json.loads(text)
    except ValueError as error:
        raise Refused(NOT_JSON, code) from error


def object_of(text: str, code: int = UNAVAILABLE) -> dict[str, Any]:
    found = json_of(text, code)
    if not isinstance(found, dict):
        raise Refused(NOT_JSON, code)
    return found


def must_enter(call: Call, vhost: str) -> None:
    """The virtual host has to be there; said as the lists of its things say it."""
    if not call.node.has_vhost(vhost):
        raise Fault(DATA, f"Virtual host '{vhost}' does not exist")


def must_have(call: Call, vhost: str, user: str) -> None:
    """Both have to be there; said as the verbs about permissions say it."""
    if call.node.found(path_of("users", user)) is None:
        raise Refused(f"User {user} does not exist", NO_USER)
    if not call.node.has_vhost(vhost):
        raise Refused(f"Virtual host {vhost} does not exist", UNAVAILABLE)


def must_know(call: Call, name: str) -> None:
    """As the verbs do that show Erlang's own error."""
    if call.node.found(path_of("users", name)) is None:
        raise Refused(f'{{:no_such_user, "{name}"}}', UNAVAILABLE)


def check_limits(limits: Mapping[str, Any], known: Sequence[str], unknown: str) -> None:
    """``unknown``: why a name that is not known is refused.  Raises Refused."""
    for limit, value in limits.items():
        if limit not in known:
            shown = ",".join(f'{{<<"{key}">>,{one}}}' for key, one in limits.items())
            raise Refused(unknown.format(terms=f"[{shown}]"), UNAVAILABLE)
        if not isinstance(value, int) or isinstance(value, bool):
            raise Refused(f"{limit} should be number, actually was {value}", UNAVAILABLE)


def columns_of(call: Call, known: Sequence[str], default: Sequence[str]) -> list[str]:
    """The columns that are asked for, as words or with commas between; raises Invalid."""
    asked = [name for word in call.words for name in word.split(",") if name]
    unknown = [name for name in asked if name not in known]
    if unknown:
        raise Invalid(f"Info key(s) {','.join(unknown)} are not supported")
    return list(dict.fromkeys(asked)) or list(default)
