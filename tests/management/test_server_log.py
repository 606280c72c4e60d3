"""Requests that are no HTTP: one line each, and not more of them than a log can bear."""

from __future__ import annotations

import logging

import pytest
from aiohttp.http_exceptions import BadStatusLine

from penstock.broker.rules.bounded_events import TOLD_MAX
from penstock.management.http.request_notes import server_logger


def no_http(logger: logging.Logger, minute: int) -> None:
    error = BadStatusLine("secret")
    info = (type(error), error, None)
    record = logger.makeRecord(logger.name, logging.ERROR, "f", 1, "bad", (), info)
    record.created = minute * 60.0
    logger.handle(record)


def test_of_very_many_requests_that_are_no_http_some_a_minute_have_a_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    logger = server_logger("penstock.tests.server_log")
    with caplog.at_level(logging.INFO):
        for _ in range(TOLD_MAX + 70):
            no_http(logger, 7)
        assert caplog.messages == ["bad: no HTTP: BadStatusLine"] * TOLD_MAX
        caplog.clear()
        no_http(logger, 8)
        no_http(logger, 8)
    assert caplog.messages == [
        "bad: no HTTP: BadStatusLine; 70 more before",
        "bad: no HTTP: BadStatusLine",
    ]
