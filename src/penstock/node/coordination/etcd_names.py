"""Keys, conditions and changes as etcd's gateway spells them, and its answers as ours.

Everything of a cluster lies below ``/penstock/<cluster name>/``:

    format              "2": what the rest looks like; another number is refused
    keys/<key>          the coordinator's keys, with checksums (``etcd_seal.py``)
    slots/<lease>/<n>   written by every accepted proposal, see ``etcd_proposals.py``

The gateway takes and gives bytes in base64, and 64-bit numbers as strings; what is 0, false or
empty it leaves out.
"""

from base64 import b64decode, b64encode
from collections.abc import Sequence
from typing import Final

from penstock.cluster.agreement.coordinator import Change, Condition, Entry, Event
from penstock.node.coordination.etcd_http import Row
from penstock.node.coordination.etcd_seal import Seal

FORMAT: Final = "2"


def to_base64(text: str | bytes) -> str:
    return b64encode(text.encode() if isinstance(text, str) else text).decode()


def from_base64(text: str) -> str:
    """What is not UTF-8 was not written by a node: it has no valid checksum as this text either."""
    return b64decode(text).decode(errors="backslashreplace")


def end_of(prefix: str) -> bytes:
    """The first key that is behind all that begin with the prefix."""
    raw = prefix.encode()
    assert raw[-1] < 0xFF  # no byte of UTF-8 is
    return raw[:-1] + bytes((raw[-1] + 1,))


def number(row: Row, name: str) -> int:
    return int(row.get(name, 0))


def revision_of(answer: Row) -> int:
    return number(answer.get("header", {}), "revision")


class EtcdNames:
    """Of one cluster."""

    def __init__(self, cluster_name: str, seal: Seal) -> None:
        self._seal = seal
        self.root = f"/penstock/{cluster_name}/"
        self.format_key = self.root + "format"
        self._keys = self.root + "keys/"
        self._slots = self.root + "slots/"

    def slot(self, lease: int, place: int) -> str:
        return f"{self._slots}{lease:x}/{place}"

    # -- asking --------------------------------------------------------------------------

    def all_keys(self, behind: str, revision: int, limit: int) -> Row:
        """A page of a snapshot: from the key behind that one on; revision 0 = now."""
        first = self._keys if not behind else f"{self._keys}{behind}\0"
        return {
            "key": to_base64(first),
            "range_end": to_base64(end_of(self._keys)),
            "revision": str(revision),
            "limit": str(limit),
        }

    def one_key(self, key: str) -> Row:
        """As it is now: the answer is linearizable."""
        return {"key": to_base64(self._keys + key)}

    def watch(self, above: int) -> Row:
        return {
            "create_request": {
                "key": to_base64(self.root),
                "range_end": to_base64(end_of(self.root)),
                "start_revision": str(above + 1),
            }
        }

    def conditions(self, conditions: Sequence[Condition]) -> list[Row]:
        return [has_revision(self._keys + one.key, one.revision) for one in conditions]

    def changes(self, changes: Sequence[Change], lease: int) -> list[Row]:
        return [self._change(one, lease) for one in changes]

    def _change(self, change: Change, lease: int) -> Row:
        key = self._keys + change.key
        if change.value is not None:
            sealed = self._seal.sealed(key, change.value)
            return put(key, sealed, lease if change.leased else 0)
        asked: Row = {"key": to_base64(key)}
        if change.below:
            asked["range_end"] = to_base64(end_of(key))
        return {"request_delete_range": asked}

    # -- understanding -------------------------------------------------------------------

    def key_at(self, path: str) -> str:
        """The coordinator's key of a key in etcd."""
        return path.removeprefix(self._keys)

    def entry(self, kv: Row) -> Entry:
        """Raises WrongSeal."""
        path = from_base64(kv["key"])
        return Entry(
            self.key_at(path),
            self._seal.opened(path, from_base64(kv.get("value", ""))),
            number(kv, "mod_revision"),
            number(kv, "create_revision"),
        )

    def event(self, row: Row) -> Event | None:
        """None: not one of the coordinator's keys.  Raises WrongSeal."""
        kv = row["kv"]
        path = from_base64(kv["key"])
        if not path.startswith(self._keys):
            return None
        key = self.key_at(path)
        revision = number(kv, "mod_revision")
        if row.get("type") == "DELETE":
            return Event(revision, key, None, created=False)
        created = number(kv, "create_revision") == revision
        value = self._seal.opened(path, from_base64(kv.get("value", "")))
        return Event(revision, key, value, created=created)


def has_revision(key: str, revision: int) -> Row:
    return {
        "target": "MOD",
        "result": "EQUAL",
        "key": to_base64(key),
        "mod_revision": str(revision),
    }


def put(key: str, value: str, lease: int = 0) -> Row:
    asked = {"key": to_base64(key), "value": to_base64(value)}
    if lease:
        asked["lease"] = str(lease)
    return {"request_put": asked}


def get(key: str) -> Row:
    return {"request_range": {"key": to_base64(key)}}


def found(answer: Row) -> Row | None:
    """What the last request of a transaction, a ``get``, found."""
    responses = answer.get("responses", [])
    kvs = responses[-1].get("response_range", {}).get("kvs", []) if responses else []
    return kvs[0] if kvs else None
