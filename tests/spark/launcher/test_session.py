"""Which address a driver listens on: the one by which this machine reaches the master."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any, Self

import pytest

from penstock.core.errors import PenstockError
from penstock.spark.launcher.session import LOG_NAME, SOMEWHERE, _log_settings, driver_host


class Probe:
    """A socket that knows the way to everywhere, and notes where it was asked to go."""

    asked: list[tuple[str, int]]

    def __init__(self, *_: Any) -> None:
        pass

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def connect(self, address: tuple[str, int]) -> None:
        Probe.asked.append(address)

    def getsockname(self) -> tuple[str, int]:
        return "10.0.0.7", 40000


@pytest.fixture(autouse=True)
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    Probe.asked = []
    monkeypatch.setattr(socket, "socket", Probe)


@pytest.mark.parametrize("master", ["local", "local[2]", "local-cluster[2,1,1024]"])
def test_an_embedded_spark_stays_on_loopback(master: str) -> None:
    assert driver_host(master) == "127.0.0.1"
    assert Probe.asked == []


@pytest.mark.parametrize(
    "master, place",
    [
        ("spark://m1:7077", ("m1", 7077)),
        ("spark://m1:7077,m2:7078", ("m1", 7077)),
        ("spark://[2001:db8::1]:7077,[2001:db8::2]:7077", ("2001:db8::1", 7077)),
        ("spark://m1:7077,[2001:db8::2]:7077", ("m1", 7077)),
        ("k8s://https://api:6443", ("api", 6443)),
        ("k8s://https://api:6443/prefix", ("api", 6443)),
        ("k8s://https://api", ("api", 1)),
        ("k8s://api:6443", ("api", 6443)),
        ("yarn", (SOMEWHERE, 1)),
    ],
)
def test_a_driver_listens_where_the_master_is_reached(master: str, place: tuple[str, int]) -> None:
    assert driver_host(master) == "10.0.0.7"
    assert Probe.asked == [place]


@pytest.mark.parametrize("master", ["spark://m1:x", "spark://[::1:7077", "spark://m1:99999,m2"])
def test_a_master_that_is_no_address_is_named(master: str) -> None:
    with pytest.raises(PenstockError, match="cannot find the Spark master spark://"):
        driver_host(master)


def test_a_name_with_percent_signs_is_no_pattern_of_the_log(tmp_path: Path) -> None:
    scratch = tmp_path / "%2Fd%C3%BC"
    scratch.mkdir()
    lines = _log_settings(scratch).read_text().splitlines()
    told = dict(line.split(" = ", 1) for line in lines if " = " in line)
    assert told["appender.file.fileName"] == f"{scratch}/{LOG_NAME}"
    assert told["appender.file.filePattern"] == f"{tmp_path}/%%2Fd%%C3%%BC/{LOG_NAME}.%i"
