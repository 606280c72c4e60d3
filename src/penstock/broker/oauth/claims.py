"""Claims of a token ─► the name of its user, and its scopes.

Scopes come from the claim ``scope``, from ``authorization.permissions.scopes`` (the tokens of
requesting parties of UMA), from the claims that ``additional_scopes_key`` names, from aliases of
all these, and from ``authorization_details`` (rich authorization requests).  Only those that begin
with the prefix of the resource server count, without it.

A value of another type than expected grants nothing.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from penstock.broker.oauth.scopes import PERMISSIONS, TAG, Wildcard, WildcardInvalid
from penstock.broker.oauth.servers import ResourceServer
from penstock.broker.oauth.tokens import TokenRefused

SCOPES_MAX: Final = 2048
"""RabbitMQ refuses a token with more, too."""
NAME_MAX_BYTES: Final = 255
SCOPE: Final = "scope"
REQUESTING_PARTY: Final = ("authorization", "permissions", "scopes")
DETAILS: Final = "authorization_details"
DETAIL_TAGS: Final = ("monitoring", "administrator", "management", "policymaker")

Claims = Mapping[str, Any]


def user_name(claims: Claims, server: ResourceServer, prefix: str) -> str:
    """Of the first claim that has one, behind its provider's prefix.  Raises TokenRefused.

    One name for all tokens without would make their clients one user, for limits as for locks.
    """
    for claim in server.username_claims:
        name = claims.get(claim)
        if isinstance(name, str) and name:
            name = prefix + name
            if len(name.encode("utf-8", "surrogatepass")) > NAME_MAX_BYTES:
                raise TokenRefused(f"the claim {claim} is too long for a user's name")
            return name
    looked_at = ", ".join(server.username_claims)
    raise TokenRefused(f"the token names no user: none of {looked_at} is a text")


def scopes_in(claims: Claims, server: ResourceServer) -> list[str]:
    """Each once, in order.  Raises TokenRefused."""
    paths = (REQUESTING_PARTY, *server.additional_scopes)
    found = set(_words(claims.get(SCOPE)))
    for path in paths:
        for value in _at(claims, path):
            found.update(_texts(value, server))
    for scope in list(found):
        found.update(server.scope_aliases.get(scope, ()))
    found.update(_detailed(claims.get(DETAILS), server))
    prefix = server.scope_prefix
    scopes = {scope.removeprefix(prefix) for scope in found if scope.startswith(prefix)}
    if len(scopes) > SCOPES_MAX:
        raise TokenRefused(f"the token has more than {SCOPES_MAX} scopes")
    return sorted(scopes)


def _words(value: object) -> list[str]:
    """A text of words, or a list of texts."""
    if isinstance(value, str):
        return value.split(" ")
    return [one for one in value if isinstance(one, str)] if isinstance(value, list) else []


def _at(value: object, path: tuple[str, ...]) -> Iterator[object]:
    """What stands at the path; of a list on the way each object is looked at."""
    if not path:
        yield value
    elif isinstance(value, dict):
        if path[0] in value:
            yield from _at(value[path[0]], path[1:])
    elif isinstance(value, list):
        for one in value:
            if isinstance(one, dict):
                yield from _at(one, path)


def _texts(value: object, server: ResourceServer) -> list[str]:
    """Scopes as words; or, by the resource server's ID, such without its prefix."""
    if isinstance(value, dict):
        return [f"{server.scope_prefix}{word}" for word in _words(value.get(server.id))]
    return _words(value)


# -- rich authorization requests -------------------------------------------------------------


def _detailed(details: object, server: ResourceServer) -> Iterator[str]:
    if not isinstance(details, list) or not server.type:
        return
    for detail in details:
        if isinstance(detail, dict) and detail.get("type") == server.type:
            where = [*_resources(_one_or_more(detail.get("locations")), server.id)]
            for action in _one_or_more(detail.get("actions")) if where else ():
                if action in DETAIL_TAGS:
                    yield f"{server.scope_prefix}{TAG}{action}"
                elif action in PERMISSIONS:
                    yield from (f"{server.scope_prefix}{action}:{one}" for one in where)


def _one_or_more(value: object) -> list[str]:
    return [value] if isinstance(value, str) else _words(value)


def _resources(locations: Iterable[str], server_id: str) -> Iterator[str]:
    """Of ``cluster:ID/vhost:V/queue:Q/routing-key:K`` those of this resource server, as V/Q/K."""
    for location in locations:
        pairs = dict(_pair(part) for part in location.split("/") if ":" in part)
        names = {pairs[kind] for kind in ("queue", "exchange") if kind in pairs}
        if len(names) < 2 and _is_within(server_id, pairs.get("cluster")):
            name = names.pop() if names else "*"
            yield f"{pairs.get('vhost', '*')}/{name}/{pairs.get('routing-key', '*')}"


def _pair(part: str) -> tuple[str, str]:
    key, value, *_ = part.split(":", 2)
    return key, value


def _is_within(server_id: str, cluster: str | None) -> bool:
    try:
        return cluster is not None and Wildcard(cluster).matches(server_id)
    except WildcardInvalid:
        return False
