"""``seal_records``: the records that release 0.1 wrote in etcd get their checksums, once.

Only where ``cluster_etcd_seal_records`` asks for it: what stands in etcd is believed here.  No node
may run, since release 0.1 could not read what is sealed; ``format`` keeps it away from the first
step on.  Every step may be the last one: the next start goes on.
"""

import logging
from collections.abc import AsyncIterator
from typing import Final

from penstock.cluster.agreement.coordinator import CHANGES_MAX
from penstock.node.coordination.etcd_http import EtcdFailed, EtcdHttp, NotReached, Row
from penstock.node.coordination.etcd_names import (
    FORMAT,
    EtcdNames,
    from_base64,
    has_revision,
    number,
    put,
    revision_of,
)
from penstock.node.coordination.etcd_seal import Seal

PLAIN: Final = "1"
"""The format of release 0.1."""
SEALING: Final = "2, not all records have checksums yet"
AT_ONCE_BYTES: Final = 1 << 19

log = logging.getLogger("penstock.etcd")


class NodesRun(EtcdFailed):
    """Records are bound to leases: of nodes that run, or ran until a moment ago."""


async def seal_records(http: EtcdHttp, names: EtcdNames, seal: Seal, format_kv: Row) -> None:
    """``format_kv``: the row of ``format``, PLAIN or SEALING.

    Raises NodesRun, NotReached where another node does the same, and as ``call``.
    """
    revision = number(format_kv, "mod_revision")
    if from_base64(format_kv["value"]) == PLAIN:
        async for kv in _records(http, names):
            if number(kv, "lease"):
                raise NodesRun(
                    "records cannot get checksums while a node of the cluster runs:"
                    f" {from_base64(kv['key'])!r} belongs to one; stop all of them"
                )
        revision = await _write(http, names, revision, [], [put(names.format_key, SEALING)])
    conditions: list[Row] = []
    changes: list[Row] = []
    size = count = 0
    async for kv in _records(http, names):
        path, value = from_base64(kv["key"]), from_base64(kv.get("value", ""))
        if seal.is_on(path, value):
            continue
        if len(changes) == CHANGES_MAX or size + len(value) > AT_ONCE_BYTES:
            await _write(http, names, revision, conditions, changes)
            conditions, changes, size = [], [], 0
        conditions.append(has_revision(path, number(kv, "mod_revision")))
        changes.append(put(path, seal.sealed(path, value)))
        size += len(path) + len(value)
        count += 1
    changes.append(put(names.format_key, FORMAT))
    await _write(http, names, revision, conditions, changes)
    log.warning("%d records below %s have checksums now", count, names.root)


async def _records(http: EtcdHttp, names: EtcdNames) -> AsyncIterator[Row]:
    """All rows of ``keys/``, which no node changes meanwhile."""
    behind = ""
    while True:
        answer = await http.call("kv/range", names.all_keys(behind, 0, CHANGES_MAX))
        for kv in answer.get("kvs", []):
            behind = names.key_at(from_base64(kv["key"]))
            yield kv
        if not answer.get("more"):
            return


async def _write(
    http: EtcdHttp, names: EtcdNames, revision: int, conditions: list[Row], changes: list[Row]
) -> int:
    """Its revision.  Only while ``format`` is as this node left it."""
    compare = [has_revision(names.format_key, revision), *conditions]
    answer = await http.call("kv/txn", {"compare": compare, "success": changes, "failure": []})
    if not answer.get("succeeded"):
        raise NotReached("another node gives the records their checksums")
    return revision_of(answer)
