"""Who may do what: permissions in a virtual host, and topic permissions on its exchanges."""

import re
from typing import Any

from penstock.client.management import path_of
from penstock.ctl.call import Call
from penstock.ctl.faults import UNAVAILABLE, Refused
from penstock.ctl.output import Table
from penstock.ctl.users import must_know
from penstock.ctl.words import must_enter, must_have


def _check_patterns(*patterns: str) -> None:
    """As far as we can tell without the node: it judges by the same rules."""
    for pattern in patterns:
        try:
            re.compile(pattern)
        except re.error as error:
            reason = error.msg.partition(",")[0]
            # Where the pattern ends, if something is missing: as PCRE says it.
            place = len(pattern) if reason.startswith("missing") else error.pos
            raise Refused(
                f"{{:invalid_regexp, '{pattern}', {{'{reason}', {place}}}}}", UNAVAILABLE
            ) from error


def set_permissions(call: Call) -> None:
    user, configure, write, read = call.take(4)
    call.say(f'Setting permissions for user "{user}" in vhost "{call.vhost}" ...')
    _check_patterns(configure, write, read)
    must_have(call, call.vhost, user)
    wanted = {"configure": configure, "write": write, "read": read}
    call.node.put(path_of("permissions", call.vhost, user), wanted)


def clear_permissions(call: Call) -> None:
    (user,) = call.take(1)
    call.say(f'Clearing permissions for user "{user}" in vhost "{call.vhost}" ...')
    must_have(call, call.vhost, user)
    call.node.delete(path_of("permissions", call.vhost, user))


def list_permissions(call: Call) -> Table:
    call.take(0)
    call.say(f'Listing permissions for vhost "{call.vhost}" ...')
    must_enter(call, call.vhost)
    columns = ("user", "configure", "write", "read")
    return _table(columns, call.node.get(path_of("vhosts", call.vhost, "permissions")))


def list_user_permissions(call: Call) -> Table:
    (user,) = call.take(1)
    call.say(f'Listing permissions for user "{user}" ...')
    must_know(call, user)
    columns = ("vhost", "configure", "write", "read")
    return _table(columns, call.node.get(path_of("users", user, "permissions")))


def _table(columns: tuple[str, ...], rows: list[dict[str, Any]], *, head: bool = True) -> Table:
    return Table(columns, [[row[column] for column in columns] for row in rows], head, True)


# -- topics ----------------------------------------------------------------------------------


def set_topic_permissions(call: Call) -> None:
    user, exchange, write, read = call.take(4)
    call.say(
        f'Setting topic permissions on "{exchange}" for user "{user}" in vhost "{call.vhost}" ...'
    )
    _check_patterns(write, read)
    must_have(call, call.vhost, user)
    wanted = {"exchange": exchange, "write": write, "read": read}
    call.node.put(path_of("topic-permissions", call.vhost, user), wanted)


def clear_topic_permissions(call: Call) -> None:
    """The API takes away all of a user's at once: those of other exchanges are set again."""
    user, *exchanges = call.take(1, 2)
    on = f' on "{exchanges[0]}"' if exchanges else ""
    call.say(f'Clearing topic permissions{on} for user "{user}" in vhost "{call.vhost}" ...')
    must_have(call, call.vhost, user)
    path = path_of("topic-permissions", call.vhost, user)
    had = call.node.found(path) or []
    call.node.delete(path)
    for one in had:
        if exchanges and one["exchange"] != exchanges[0]:
            kept = {name: one[name] for name in ("exchange", "write", "read")}
            call.node.put(path, kept)


def list_topic_permissions(call: Call) -> Table:
    call.take(0)
    call.say(f'Listing topic permissions for vhost "{call.vhost}" ...')
    must_enter(call, call.vhost)
    columns = ("user", "exchange", "write", "read")
    return _table(columns, call.node.get(path_of("vhosts", call.vhost, "topic-permissions")))


def list_user_topic_permissions(call: Call) -> Table:
    (user,) = call.take(1)
    call.say(f'Listing topic permissions for user "{user}" ...')
    must_know(call, user)
    columns = ("vhost", "exchange", "write", "read")
    found = call.node.get(path_of("users", user, "topic-permissions"))
    # RabbitMQ prints no head here.
    return _table(columns, found, head=False)
