"""RabbitMQ's PerfTest with the options that its users write most, classic and quorum queues."""

from __future__ import annotations

import re
import subprocess

import pytest

from tests.helpers.broker_process import BrokerProcess
from tests.interop.programs import PERF_TEST, built, missing_reason

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]  # it may have to fetch its libraries

CASES = {
    "classic": "-u perf-classic -x 1 -y 2 -C 2000 -D 1000 -s 100",
    "quorum": "-u perf-quorum -qq -x 2 -y 1 -C 1000 -D 2000 -c 100 -q 200 -a -s 1000",
    "persistent": "-u perf-kept -ad false -f persistent -x 1 -y 1 -C 1000 -D 1000 -c 10 -A 20",
    "many queues": "-qp perf-%d -qpf 1 -qpt 3 -qq -x 3 -y 3 -C 300 -D 300 --rate 500",
    "arguments": "-u perf-lazy -qa x-queue-mode=lazy,x-max-length=50000 -C 1000 -D 1000",
    "exchange": "-e perf-topic -t topic -k orders.eu -u perf-topic -C 1000 -D 1000",
    "for a time": "-u perf-timed -qq -x 1 -y 1 -z 3 --rate 1000 -c 50 -q 100 -ms",
}


@pytest.fixture(scope="module")
def program() -> list[str]:
    reason = missing_reason(PERF_TEST)
    if reason:
        pytest.skip(reason)
    return PERF_TEST.command(built(PERF_TEST))


@pytest.mark.parametrize("options", CASES.values(), ids=CASES)
def test_it_publishes_and_consumes(broker: BrokerProcess, program: list[str], options: str) -> None:
    uri = broker.url.removesuffix("/%2f")
    done = subprocess.run(
        [*program, "-h", uri, *options.split()],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    rates = re.findall(r"(?:sending|receiving) rate avg: (\d+) msg/s", said)
    assert len(rates) == 2, said
    assert all(int(rate) > 0 for rate in rates), said
    assert "xception" not in said, said
