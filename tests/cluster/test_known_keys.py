"""By what a member knows that its coordinator has lost data while it runs."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from penstock.cluster.agreement.coordinator import CHANGED, Entry, Event
from penstock.cluster.agreement.known_keys import FOUNDED, KnownKeys
from penstock.node.coordination.etcd_http import EtcdHttp, Row
from penstock.node.coordination.etcd_names import EtcdNames, to_base64
from penstock.node.coordination.etcd_seal import Seal
from penstock.node.coordination.etcd_watch import EtcdWatch


def kv(names: EtcdNames, key: str, value: str, revision: int) -> Row:
    path = f"{names.root}keys/{key}"
    return {
        "key": to_base64(path),
        "value": to_base64(Seal(b"secret").sealed(path, value)),
        "mod_revision": str(revision),
        "create_revision": str(revision),
    }


QUEUE = "queues/%2F/q"
ENTRIES = [Entry(FOUNDED, "one", 3, 3), Entry(QUEUE, "{}", 7, 7), Entry(CHANGED, "", 7, 4)]


@pytest.fixture
def known() -> KnownKeys:
    return KnownKeys(ENTRIES, 8)


@pytest.mark.parametrize(
    "founded, revision, words",
    [
        ("one", 7, "older than what it said before"),
        (None, 20, "knows this cluster no more"),
        ("another", 20, "another cluster"),
    ],
)
def test_each_sign_of_a_loss_is_enough(
    known: KnownKeys, founded: str | None, revision: int, words: str
) -> None:
    known.look(founded, revision)
    assert words in known.lost


def test_the_same_history_that_went_on_is_no_loss(known: KnownKeys) -> None:
    known.look("one", 8)
    known.look("one", 20)
    assert known.lost == ""


@pytest.mark.parametrize("late, value", [(QUEUE, "{}"), (FOUNDED, "one")])
def test_an_answer_that_was_overtaken_by_the_stream_is_no_loss(late: str, value: str) -> None:
    """The lease asks while the stream goes on; on a busy machine the answer comes later."""

    class Etcd:
        async def call(self, path: str, body: Row) -> Row:
            watch._row({"result": {"events": [change]}})
            return {"header": {"revision": "8"}, "kvs": asked}

    names = EtcdNames("penstock", Seal(b"secret"))
    watch = EtcdWatch(cast(EtcdHttp, Etcd()), names, lambda events, revision: None)
    asked = [] if late == FOUNDED else [kv(names, FOUNDED, "one", 3)]
    change = {"kv": kv(names, late, value, 9)}
    watch.known = KnownKeys([entry for entry in ENTRIES if entry.key != late], 8)
    asyncio.run(watch.check())
    assert (watch.known.lost, watch.known.revision) == ("", 9)


def test_a_cluster_that_goes_or_changes_in_the_stream_is_a_loss(known: KnownKeys) -> None:
    known.told([Event(9, FOUNDED, None, created=False)], 9)
    assert "knows this cluster no more" in known.lost


def test_an_older_copy_that_was_gone_on_with_deletes_nothing(known: KnownKeys) -> None:
    """Members came and went: its revision is larger, that of its last change is not."""
    older = [
        Entry(FOUNDED, "one", 3, 3),
        Entry(CHANGED, "", 4, 4),
        Entry("members/a", "{}", 19, 19),
    ]
    assert known.difference(older, 20) == []
    assert "changed at revision 4, not 7" in known.lost


def test_a_deletion_that_was_missed_is_told(known: KnownKeys) -> None:
    newer = [Entry(FOUNDED, "one", 3, 3), Entry(CHANGED, "", 19, 4)]
    told = known.difference(newer, 20)
    assert (QUEUE, None) in [(event.key, event.value) for event in told]
    assert known.lost == ""
