"""Fixtures and habits of the whole suite.

``PENSTOCK_TEST_URL``  run the client tests against another broker (see helpers/live_broker)
``HYPOTHESIS_PROFILE`` examples tried: quick (10), dev (50, the default), nightly (10,000)
``PENSTOCK_REPEAT=100`` each test so many times
``PENSTOCK_NO_SKIP=1`` a skipped test is a failure: for machines that must have everything
``PENSTOCK_NSQ_BIN``    directory with nsqd, nsqlookupd and nsqadmin 1.3.0: no registry has them, so
                       tests that ask them (marked ``nsqd``) are left out without, not skipped
``--hypothesis-seed``  repeats the random choices; the one in use stands in the header
"""

from __future__ import annotations

import os
import random
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hypothesis
import pytest

from tests.helpers import rabbit
from tests.helpers.broker_process import BrokerProcess
from tests.helpers.kinds import lacking
from tests.helpers.live_broker import broker_for_tests
from tests.helpers.nsq_broker import real

if TYPE_CHECKING:
    from tests.helpers.scheduling import SideBySide

hypothesis.settings.register_profile("quick", max_examples=10, deadline=None, print_blob=True)
hypothesis.settings.register_profile("guard", max_examples=25, deadline=None, print_blob=True)
hypothesis.settings.register_profile("dev", max_examples=50, deadline=None, print_blob=True)
hypothesis.settings.register_profile("nightly", max_examples=10_000, deadline=None, print_blob=True)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "dev"))

NO_SKIP = os.environ.get("PENSTOCK_NO_SKIP") == "1"
REPEAT = int(os.environ.get("PENSTOCK_REPEAT", "1"))


# Before Hypothesis reads its option; workers of pytest-xdist inherit the value.
@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    if config.option.hypothesis_seed is None:
        config.option.hypothesis_seed = str(random.SystemRandom().randrange(2**32))


def pytest_report_header(config: pytest.Config) -> list[str]:
    build = "interpreted" if os.environ.get("PENSTOCK_PURE") == "1" else "compiled where possible"
    return [
        f"penstock: {build}; broker under test: {os.environ.get('PENSTOCK_TEST_URL', 'penstock')}",
        f"random: --hypothesis-seed={config.option.hypothesis_seed}",
    ]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> SideBySide | None:
    from tests.helpers.scheduling import SideBySide

    return SideBySide(config, log) if config.option.dist == "loadfile" else None


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if REPEAT > 1:
        metafunc.fixturenames.append("repetition")
        metafunc.parametrize("repetition", range(REPEAT))


@pytest.fixture
def repetition() -> None:
    """The how manieth time a test runs, in its name."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not real("nsqd"):
        asking = [item for item in items if item.get_closest_marker("nsqd") is not None]
        config.hook.pytest_deselected(items=asking)
        items[:] = [item for item in items if item.get_closest_marker("nsqd") is None]
    if "PYTEST_XDIST_WORKER" in os.environ:
        # One worker would end a long file alone, were it among the last; those of the UI are long.
        long = {item.path for item in items if item.get_closest_marker("slow")}
        items.sort(key=lambda item: item.path not in long and item.path.parent.name != "ui")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    missing = lacking(call.excinfo.value) if report.failed and call.excinfo else None
    if missing is not None:
        report.longrepr = (str(item.path), item.location[1] or 0, f"Skipped: {missing}")
        report.outcome = "skipped"
    if NO_SKIP and report.skipped and not hasattr(report, "wasxfail"):
        report.longrepr = f"skipped, but PENSTOCK_NO_SKIP=1: {_reason(report.longrepr)}"
        report.outcome = "failed"
    if report.failed:
        for value in getattr(item, "funcargs", {}).values():
            if isinstance(value, BrokerProcess):
                report.sections.append((f"output of {value.name}", value.output()[-8000:]))
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    missing = None
    if report.failed and report.call.excinfo:  # type: ignore[attr-defined]
        missing = lacking(report.call.excinfo.value)  # type: ignore[attr-defined]
    if missing is not None:
        report.longrepr = (str(collector.path), 0, f"Skipped: {missing}")
        report.outcome = "skipped"
    if NO_SKIP and report.skipped:
        report.longrepr = f"skipped, but PENSTOCK_NO_SKIP=1: {_reason(report.longrepr)}"
        report.outcome = "failed"
    return report


def _reason(longrepr: object) -> object:
    return longrepr[2] if isinstance(longrepr, tuple) else longrepr


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker process shared by the tests of one file; it must stop cleanly at the end."""
    yield from _running(tmp_path_factory.mktemp("broker"))


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    """A broker process for one test, which may kill and restart it."""
    if os.environ.get("PENSTOCK_TEST_URL", "").startswith("amqp"):
        pytest.skip("this test kills its broker, and PENSTOCK_TEST_URL names a foreign one")
    yield from _running(tmp_path / "broker")


def _running(directory: Path) -> Iterator[BrokerProcess]:
    under_test = broker_for_tests(directory)
    if isinstance(under_test, rabbit.RabbitServer):
        _require(rabbit.missing_reason())
    with under_test as running:
        yield running


@pytest.fixture(scope="session")
def rabbit_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[rabbit.RabbitServer]:
    """The real RabbitMQ, one node for the whole session."""
    _require(rabbit.missing_reason())
    with rabbit.RabbitServer(tmp_path_factory.mktemp("rabbitmq")) as running:
        yield running


def _require(missing: str | None) -> None:
    if missing:
        pytest.skip(missing)
