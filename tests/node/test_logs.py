"""Where log lines go, which of them, and that no log can hurt the broker."""

from __future__ import annotations

import json
import logging
import re
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.core.errors import SettingInvalid
from penstock.core.printable import printable
from penstock.node.inspection.logs import RING_LINES, WAITING_MAX, Logs
from penstock.node.inspection.state_lines import LINES, log_events
from penstock.node.node import Node
from penstock.settings.settings import Settings, load_settings


def settings(tmp_path: Path, **given: str) -> Settings:
    flags = {"data_dir": str(tmp_path), "log_console": "false", **given}
    return load_settings(None, {}, flags)


@pytest.fixture
def logs() -> Iterator[Logs]:
    root = logging.getLogger()
    level, made = root.level, Logs()
    yield made
    for category in [category for category in made.levels() if category]:
        made.set_level("", category)
    for handler in [*root.handlers]:
        if handler in made._handlers:
            root.removeHandler(handler)
            handler.close()
    root.setLevel(level)


def test_levels_of_all_and_of_a_category(logs: Logs, tmp_path: Path) -> None:
    logs.apply(settings(tmp_path, log_level="warning", log_connection_level="debug"))
    logging.getLogger("penstock.connection").debug("heard")
    logging.getLogger("penstock.queue").info("not heard")
    logs.set_level("debug", "queue")
    logging.getLogger("penstock.queue").info("now heard")
    logs.set_level("none")
    logging.getLogger("penstock").critical("silence")
    assert [line.partition("> ")[2] for line in logs.lines(10)] == ["heard", "now heard"]
    assert re.fullmatch(
        r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{6}\+00:00 \[debug\] <connection> heard",
        logs.lines(2)[0],
    )
    assert logs.levels() == {"": "none", "connection": "debug", "queue": "debug"}


def test_text_of_peers_neither_begins_a_line_nor_moves_a_cursor(logs: Logs, tmp_path: Path) -> None:
    logs.apply(settings(tmp_path))
    logging.getLogger("penstock.nsqlookupd").info("%s", "REG\x1b[31m\x07\nx\u202ey é")
    try:
        raise ValueError("a\x1b[0mb")
    except ValueError:
        logging.getLogger("penstock").exception("failed")
    line, failed = logs.lines(2)
    assert line.endswith("<nsqlookupd> REG\\x1b[31m\\x07\\nx\\u202ey é")
    assert printable("y\udcff") == "y\\udcff"
    assert failed.splitlines()[-1] == "ValueError: a\\x1b[0mb"


def test_the_ring_is_bounded(logs: Logs, tmp_path: Path) -> None:
    logs.apply(settings(tmp_path))
    for number in range(RING_LINES + 5):
        logging.getLogger("penstock").info("line %d", number)
    assert len(logs.lines(10 * RING_LINES)) == RING_LINES
    assert logs.lines(1)[0].endswith(f"line {RING_LINES + 4}")


def test_a_file_is_put_aside_by_size(logs: Logs, tmp_path: Path) -> None:
    logs.apply(
        settings(
            tmp_path,
            log_file="p.log",
            log_file_format="json",
            log_file_size_bytes="2000",
            log_file_count="2",
        )
    )
    for number in range(60):
        logging.getLogger("penstock.channel").warning("line %d", number)
    names = sorted(path.name for path in (tmp_path / "logs").iterdir())
    assert names == ["p.log", "p.log.1", "p.log.2"]
    row = json.loads((tmp_path / "logs" / "p.log").read_text().splitlines()[-1])
    assert (row["level"], row["category"], row["message"]) == ("warning", "channel", "line 59")


def test_a_node_starts_twice_with_only_a_log_file(logs: Logs, tmp_path: Path) -> None:
    """The old message log was a directory of the data directory, too."""
    given = settings(tmp_path, log_file="p.log")
    for _ in range(2):
        logs.apply(given)  # before the node, as ``run`` does
        Node(given, logs)._close()


def test_a_file_that_cannot_be_written_changes_nothing(logs: Logs, tmp_path: Path) -> None:
    logs.apply(settings(tmp_path, log_level="debug"))
    (tmp_path / "logs").write_text("in the way")
    with pytest.raises(SettingInvalid, match="log_file = "):
        logs.apply(settings(tmp_path, log_level="error", log_file="p.log"))
    assert logs.levels() == {"": "debug"}


def test_what_waits_for_the_exchange_is_bounded(logs: Logs, tmp_path: Path) -> None:
    logs.apply(settings(tmp_path, log_exchange="true", log_exchange_level="error"))
    assert logs.outbox is not None
    logging.getLogger("penstock").warning("not important enough")
    for _ in range(WAITING_MAX + 3):
        logging.getLogger("penstock").error("x")
    assert (len(logs.outbox.waiting), logs.outbox.dropped) == (WAITING_MAX, 3)
    line = logs.outbox.waiting[0]
    assert (line.level, line.category) == ("error", "node")


def test_a_line_about_publishing_lines_is_not_published(logs: Logs, tmp_path: Path) -> None:
    logs.apply(settings(tmp_path, log_exchange="true"))
    outbox = logs.outbox
    assert outbox is not None
    with outbox.closed():
        logging.getLogger("penstock").info("by the publisher of lines")
        elsewhere = threading.Thread(target=logging.getLogger("penstock").info, args=("elsewhere",))
        elsewhere.start()
        elsewhere.join()
    logging.getLogger("penstock").info("afterwards")
    told = [line.text.partition("> ")[2] for line in outbox.waiting]
    assert told == ["elsewhere", "afterwards"]


EVENTS: list[tuple[int, str, tuple[object, ...]]] = [
    (1, "connection_opened", ("1.2.3.4:5 -> 6.7.8.9:10", "ann", "/", "AMQP 0-9-1", "billing-7")),
    (1, "connection_closed", ("1.2.3.4:5 -> 6.7.8.9:10", 1500)),
    (1, "login_refused", ("c", "bob", "PLAIN", "Login was refused")),
    (1, "channel_failed", ("c", 1, "a", "/", "queue.declare", 404, "NOT_FOUND - no queue 'q\n'")),
    (1, "connection_failed", ("c", 0, "a", "/", None, 501, "FRAME_ERROR")),
    (1, "logins_refused", ("10.0.0.9", 3, "bob")),
    (1, "channel_opened", ("c", 1)),
    (1, "channel_closed", ("c", 1)),
    (1, "connection_state", ("c", "flow", "running")),
    (1, "channel_state", ("c", 1, "flow", "running")),
    (1, "queue_declared", ("/", "q", True, False, "classic")),
    (1, "queue_deleted", ("/", "q")),
    (1, "queue_state", ("/", "q", "flow", "running")),
    (1, "paging_begun", ("/", "q", 10, 5)),
    (1, "paging_ended", ("/", "q", 5, 5, 20)),
    (1, "opening_failed", ("c", "amqp091", "bad header b'GET / HT'")),
    (1, "openings_failed", ("10.0.0.9", 7, "bad header b'GET / HT'")),
    (1, "login_locked_out", ("bob", "10.0.0.9", 300)),
    (1, "login_unlocked", ("bob", "10.0.0.9")),
    (1, "queue_rates", ()),
]


def test_a_line_for_each_change_of_state(logs: Logs, tmp_path: Path) -> None:
    assert {kind for _, kind, _ in EVENTS} ^ set(LINES) == {"queue_rates"}
    logs.apply(settings(tmp_path, log_level="debug"))
    log_events(EVENTS)
    said = [line.partition("+00:00 ")[2] for line in logs.lines(100)]
    assert said[:2] == [
        (
            "[info] <connection> accepting AMQP connection (1.2.3.4:5 -> 6.7.8.9:10 - billing-7):"
            " user 'ann' authenticated and granted access to vhost '/'"
        ),
        "[info] <connection> closing connection (1.2.3.4:5 -> 6.7.8.9:10) after 1.5 s",
    ]
    assert said[2:5] == [
        (
            "[error] <connection> Error on AMQP connection (c, state: starting): PLAIN login"
            " refused: user 'bob' - Login was refused"
        ),
        (
            "[error] <channel> Channel error on connection (c, vhost: '/', user: 'a'), channel 1:"
            " operation queue.declare caused a channel exception not_found: no queue 'q\\n'"
        ),
        (
            "[error] <connection> Error on AMQP connection (c, vhost: '/', user: 'a'), channel 0:"
            " operation none caused a connection exception frame_error"
        ),
    ]
    assert said[5:] == [
        (
            "[error] <connection> 3 more log-ins refused to 10.0.0.9 within a minute, as 'bob' and"
            " others"
        ),
        "[debug] <channel> connection (c): channel 1 opened",
        "[debug] <channel> connection (c): channel 1 closed",
        "[debug] <connection> connection (c) is flow, was running",
        "[debug] <channel> connection (c): channel 1 is flow, was running",
        "[debug] <queue> queue 'q' in vhost '/' declared, durable",
        "[debug] <queue> queue 'q' in vhost '/' deleted",
        "[debug] <queue> queue 'q' in vhost '/' is flow, was running",
        "[info] <queue> queue 'q' in vhost '/' pages to disk: 10 bytes held, 5 wanted",
        "[info] <queue> queue 'q' in vhost '/' paged 5 bytes to disk in 20 ms",
        (
            "[error] <connection> closing AMQP connection (c) before it is open: bad header"
            " b'GET / HT'"
        ),
        (
            "[error] <connection> 7 more connections of 10.0.0.9 closed within a minute before they"
            " were open: bad header b'GET / HT'"
        ),
        (
            "[error] <connection> log-ins of user 'bob' from 10.0.0.9 are locked out for 300 s"
            " after too many wrong passwords"
        ),
        "[info] <connection> log-ins of user 'bob' from 10.0.0.9 are not locked out any more",
    ]
    logs.set_level("info")
    log_events(EVENTS)
    assert len(logs.lines(100)) == len(said) + 12
