"""Users, their passwords, tags and limits."""

import base64
import hashlib
import secrets
import sys
from typing import Any, Final

from penstock.client.management import Login, ManagementClient, path_of
from penstock.ctl.call import Call, check_limits, must_have, must_know, object_of
from penstock.ctl.faults import DATA, NO_USER, UNAVAILABLE, Fault, Invalid, Refused
from penstock.ctl.output import Facts, Table, Term, as_json
from penstock.ctl.plain import patterns

ADDED: Final = (
    "Done. Don't forget to grant the user permissions to some virtual hosts! See 'penstockctl help"
    " set_permissions' to learn more."
)
MISSING: Final = "Password is not provided via argument or stdin"
HASHES: Final = ("sha256", "sha512", "md5")
SALT_BYTES: Final = 4
USER_LIMITS: Final = ("max-connections", "max-channels")


def user_of(call: Call, name: str) -> dict[str, Any]:
    """Raises Refused when there is none."""
    found = call.node.found(path_of("users", name))
    if found is None:
        raise Refused(f'User "{name}" does not exist', NO_USER)
    return dict(found)


def _tags(user: dict[str, Any]) -> list[str]:
    tags = user["tags"]
    return [tag for tag in tags.split(",") if tag] if isinstance(tags, str) else list(tags)


def _name_and_password(call: Call) -> tuple[str, str]:
    words = call.take(1, 2)
    if not words[0]:
        raise Invalid("Bad argument: user cannot be an empty string", DATA)
    return words[0], words[1] if len(words) == 2 else ""


def asked(call: Call, what: str) -> str:
    """A person's is not shown, a program's is one line; "" = none came."""
    if sys.stdin is not None and sys.stdin.isatty():
        from getpass import getpass

        return getpass(what)
    if not call.is_quiet:
        call.out.write(f"{what}\n")
    return sys.stdin.readline().rstrip("\n") if sys.stdin else ""


def _password(call: Call, given: str) -> str:
    if len(call.words) == 2:
        return given
    password = asked(call, "Password: ")
    if not password:
        raise Refused(MISSING, DATA)
    return password


def hash_password(call: Call) -> str:
    """As definitions have it: a salt of four bytes, then the hash of salt and password."""
    (password,) = call.take(1)
    algorithm = call.text("hashing-algorithm", HASHES[0])
    if algorithm not in HASHES:
        raise Invalid(f"hashing algorithm: one of {', '.join(HASHES)}")
    call.say("Will hash the password")
    salt = secrets.token_bytes(SALT_BYTES)
    hashed = hashlib.new(algorithm, salt + password.encode(), usedforsecurity=False)
    return base64.b64encode(salt + hashed.digest()).decode()


def add_user(call: Call) -> object:
    name, given = _name_and_password(call)
    call.say(f'Adding user "{name}" ...')
    if call.node.found(path_of("users", name)) is not None:
        if call.formatter == "json":
            facts = {"message": f"User {name} already exists", "result": "error"}
            raise Fault(UNAVAILABLE, as_json({"node": call.node.name, **facts}, sort=True))
        raise Refused(f'User "{name}" already exists')
    password = _password(call, given)
    kind = "password_hash" if call.is_set("pre-hashed-password") else "password"
    call.do("add_user", user=name, tags="", **{kind: password})
    if call.is_quiet and call.formatter != "json":
        return None
    return Facts(ADDED, {"message": ADDED, "node": call.node.name, "status": "ok"})


def change_password(call: Call) -> None:
    name, given = _name_and_password(call)
    call.say(f'Changing password for user "{name}" ...')
    user = user_of(call, name)
    password = _password(call, given)
    call.do("add_user", user=name, password=password, tags=",".join(_tags(user)))


def clear_password(call: Call) -> None:
    (name,) = call.take(1)
    call.say(f'Clearing password for user "{name}" ...')
    must_know(call, name)
    user = user_of(call, name)
    call.do("add_user", user=name, password_hash="", tags=",".join(_tags(user)))


def authenticate_user(call: Call) -> object:
    name, given = _name_and_password(call)
    call.say(f'Authenticating user "{name}" ...')
    password = _password(call, given)
    answer = ManagementClient(call.node.url, Login(name, password), call.node.trust).request(
        "GET", "/api/whoami"
    )
    # Who may not use the API has been recognized all the same.
    if answer.status == 401 and answer.reason() == "Login failed":
        raise Refused(
            f"Error: failed to authenticate user \"{name}\"\nuser '{name}' - invalid credentials",
            DATA,
        )
    return "Success"


def set_permissions_globally(call: Call) -> None:
    user, configure, write, read = call.take(4)
    call.say(f'Setting permissions for user "{user}" in all virtual hosts ...')
    given = {"user": user, "configure": configure, "write": write, "read": read}
    for row in call.node.get("/api/vhosts?columns=name"):
        patterns(call, {**given, "vhost": row["name"]})
        call.do("set_permissions", **given, vhost=row["name"])


def set_user_tags(call: Call) -> None:
    name, *tags = call.take(1, 1000)
    call.say(f'Setting tags for user "{name}" to [{", ".join(tags)}] ...')
    user = user_of(call, name)
    kept = {field: user[field] for field in ("password_hash", "hashing_algorithm")}
    call.do("add_user", user=name, tags=",".join(tags), **kept)


def list_users(call: Call) -> Table:
    call.say("Listing users ...")
    rows = [(user["name"], [Term(tag) for tag in _tags(user)]) for user in _all(call, "users")]
    return Table(("user", "tags"), rows)


def _all(call: Call, *parts: str) -> list[dict[str, Any]]:
    return list(call.node.get(path_of(*parts)))


def clear_topic_permissions(call: Call) -> None:
    """The API takes away all of a user's at once: those of other exchanges are set again."""
    user, *exchanges = call.take(1, 2)
    on = f' on "{exchanges[0]}"' if exchanges else ""
    call.say(f'Clearing topic permissions{on} for user "{user}" in vhost "{call.vhost}" ...')
    must_have(call, call.vhost, user)
    had = call.node.found(path_of("topic-permissions", call.vhost, user)) or []
    call.do("clear_topic_permissions", user=user)
    for one in had:
        if exchanges and one["exchange"] != exchanges[0]:
            call.do("set_topic_permissions", **one)


# -- limits ----------------------------------------------------------------------------------


def set_user_limits(call: Call) -> None:
    name, definition = call.take(2)
    call.say(f'Setting user limits to "{definition}" for user "{name}" ...')
    limits = object_of(definition)
    check_limits(limits, USER_LIMITS, "Unrecognised terms {terms} in user-limits")
    must_know(call, name)
    for limit, value in limits.items():
        call.do("set_user_limits", user=name, limit=limit, value=value)


def clear_user_limits(call: Call) -> None:
    name, limit = call.take(2)
    if limit == "all":
        call.say(f'Clearing all limits for user "{name}" ...')
    else:
        call.say(f'Clearing "{limit}" limit for user "{name}" ...')
    must_know(call, name)
    for one in USER_LIMITS if limit == "all" else (limit,):
        if one in USER_LIMITS:
            call.do("clear_user_limits", user=name, limit=one)


def list_user_limits(call: Call) -> object:
    if call.is_set("global"):
        call.say("Listing limits for all users ...")
        rows = [(one["user"], as_json(one["value"])) for one in _all(call, "user-limits")]
        return Table(("user", "limits"), rows)
    name = call.text("user", "guest")
    call.say(f'Listing limits for user "{name}" ...')
    must_know(call, name)
    found = _all(call, "user-limits", name)
    text = as_json(dict(sorted(found[0]["value"].items())) if found else {})
    return Facts(text, {"message": text})
