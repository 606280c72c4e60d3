"""Where we answer administrators otherwise than RabbitMQ 3.10.8, and why."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from tests.management.admin_cases import ALL, HASHED, MULTIPART, RULE, Step, _part, get, put

NOT_A_FAULT_OF_OURS: Final = "RabbitMQ fails with 500: what was sent is wrong, and is told so"
WOULD_LOCK_OUT: Final = "RabbitMQ takes it, and nobody can ever log in with it"
ALL_OR_NOTHING: Final = "RabbitMQ deletes those before the unknown one; here nothing is done"
OUR_PATTERNS: Final = "Python's words for what is wrong with a pattern, and as text"
PLUGIN: Final = "the recorded node ran without the plug-in"
NEWER: Final = "of RabbitMQ 4, or of a plug-in: here without one"
NOT_HERE: Final = "no such thing here"


class Otherwise(NamedTuple):
    """``told``: the reason of an error, or the body."""

    why: str
    status: int
    told: Any


def _bad(text: Any, why: str = NOT_A_FAULT_OF_OURS) -> Otherwise:
    return Otherwise(why, 400, text)


def _invalid(text: str, why: str = NOT_A_FAULT_OF_OURS) -> Otherwise:
    return _bad(f"Validation failed\n\n{text}\n", why)


_NAMED: Final = {
    "name": "named",
    "hashing_algorithm": "rabbit_password_hashing_sha256",
    "tags": [],
    "limits": {},
}
_BAD_SET: Final = "unterminated character set at position 0"
_USER: Final = "/api/users/hashed"
_POLICY: Final = "/api/policies/%2F/bad"
_STEPS: Final = [
    (
        put(_USER, {"password_hash": HASHED, "hashing_algorithm": "nosuch", "tags": ""}),
        _bad("unknown hashing algorithm 'nosuch'", WOULD_LOCK_OUT),
    ),
    (
        put(_USER, {"password_hash": "no base64", "tags": ""}),
        _bad("password_hash is no base64", WOULD_LOCK_OUT),
    ),
    (put(_USER, {"password": 5, "tags": ""}), _bad("password is no text")),
    (put(_USER, {"password": "p", "tags": 5}), _bad("'tags' is no list of names")),
    (
        Step("POST", "/api/users/bulk-delete", {"users": "fresh"}),
        _bad("users is no list of names"),
    ),
    (get("/api/users/named"), Otherwise(ALL_OR_NOTHING, 200, _NAMED)),
    (
        put("/api/permissions/%2F/mgm", {**ALL, "read": "["}),
        _bad(["invalid_regexp", "[", _BAD_SET], OUR_PATTERNS),
    ),
    (put("/api/permissions/%2F/mgm", {**ALL, "read": 5}), _bad("read is no text")),
    (
        put(
            "/api/topic-permissions/%2F/mgm",
            {"exchange": "amq.topic", "write": "[", "read": ""},
        ),
        _bad(["invalid_regexp", "[", _BAD_SET], OUR_PATTERNS),
    ),
    (
        put(_POLICY, {**RULE, "pattern": "["}),
        _invalid(f"pattern should be regular expression but is invalid: {_BAD_SET}", OUR_PATTERNS),
    ),
    (put(_POLICY, {**RULE, "definition": []}), _invalid("no policy provided")),
    (
        put(_POLICY, {**RULE, "definition": "x"}),
        _invalid('definition should be an object, actually was <<"x">>'),
    ),
    (
        get("/api/version"),
        Otherwise(NEWER, 200, {"product_version": "0.1.0", "version": "3.10.8"}),
    ),
    (
        put(
            "/api/parameters/shovel/%2F/s",
            {"value": {"src-uri": "amqp://", "dest-uri": "amqp://"}},
        ),
        _invalid("Must specify 'src-exchange' or 'src-queue'", PLUGIN),
    ),
    (get("/api/shovels"), Otherwise(NEWER, 200, [])),
    (get("/api/federation-links"), Otherwise(NEWER, 200, [])),
    (get("/api/deprecated-features"), Otherwise(NEWER, 200, [])),
    (
        Step("POST", "/api/definitions", _part("other", "{}"), "guest", MULTIPART),
        _bad("the form has no field 'file'", "it says what is missing"),
    ),
]
OTHERWISE: Final = {step.name: otherwise for step, otherwise in _STEPS}
