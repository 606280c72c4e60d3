"""Which worker of pytest-xdist gets which tests (helpers/scheduling)."""

from __future__ import annotations

from typing import Any
from unittest.mock import MagicMock

from tests.helpers.scheduling import SideBySide

TESTS = (
    *(f"tests/core/test_a.py::test_{number}" for number in (1, 2, 3)),
    *("tests/crash/test_b.py::test_1", "tests/crash/test_b.py::test_2"),
    *(f"tests/spark/test_c.py::test_{number}" for number in (1, 2, 3)),
    "tests/spark/test_d.py::test_1",
)


def worker(number: int) -> Any:
    node = MagicMock(shutting_down=False)
    node.gateway.id = f"gw{number}"
    return node


def started(workers: int) -> tuple[SideBySide, list[Any]]:
    config = MagicMock()
    config.getvalue.return_value = ["popen"] * workers
    config.option.loadscopereorder = False
    scheduling, nodes = SideBySide(config), [worker(number) for number in range(workers)]
    for node in nodes:
        scheduling.add_node(node)
        scheduling.add_node_collection(node, TESTS)
    scheduling.schedule()
    return scheduling, nodes


def test_the_first_worker_begins_with_spark_the_others_with_the_rest() -> None:
    scheduling, nodes = started(3)
    assert [next(iter(scheduling.assigned_work[node])) for node in nodes] == [
        "tests/spark/test_c.py",
        "tests/core/test_a.py",
        "tests/crash/test_b.py::test_1",
    ]


def test_each_crash_test_is_a_unit_and_a_worker_without_its_own_kind_takes_the_other() -> None:
    scheduling, (node,) = started(1)
    for test in TESTS[5:] + TESTS[:5]:
        scheduling.mark_test_complete(node, TESTS.index(test))
    assert list(scheduling.assigned_work[node]) == [
        "tests/spark/test_c.py",
        "tests/spark/test_d.py",
        "tests/core/test_a.py",
        "tests/crash/test_b.py::test_1",
        "tests/crash/test_b.py::test_2",
    ]
    assert not scheduling.has_pending
