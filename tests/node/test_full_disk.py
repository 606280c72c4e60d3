"""What clients of a broker hear whose disk has no room for anything new (D5 of the review)."""

from __future__ import annotations

import pytest

from penstock.broker.topology.changes import NO_ROOM
from penstock.core.errors import Blocked
from tests.helpers.connection_pair import QuietBroker
from tests.helpers.nsq_pair import NsqBroker


def test_nsq_clients_get_no_new_channel_and_keep_those_there_are() -> None:
    node = NsqBroker()
    node.nsq_client().subscribe("t", "old")
    node.broker.admission.note_reserve(False)
    assert node.nsq_client().ask(b"SUB t new\n") == [f"E_SUB_FAILED SUB failed {NO_ROOM}".encode()]
    assert node.nsq_client().ask(b"SUB other c\n")[0] != b"OK"
    assert node.nsq_client().ask(b"SUB t old\n") == [b"OK"]
    assert "other" not in node.broker.vhosts["/"].topics.topics
    node.broker.admission.note_reserve(True)
    assert node.nsq_client().ask(b"SUB t new\n") == [b"OK"]
    node.check()


def test_what_a_cluster_has_agreed_on_is_kept_all_the_same() -> None:
    broker = QuietBroker().broker
    changes = broker.changes
    broker.admission.stalled = True
    with pytest.raises(Blocked, match="the disk is full"):
        changes.check_room()
    changes.follows = True  # and nothing is proposed now: it is applied
    changes.check_room()
    changes.proposes = True
    with pytest.raises(Blocked, match="the disk is full"):
        changes.check_room()
