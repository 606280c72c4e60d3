"""Sizes with units mean what they mean to RabbitMQ; limits become bytes of a known machine."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.capacity import (
    DiskLimit,
    MemoryLimit,
    parse_disk_limit,
    parse_memory_limit,
    parse_size,
)

# What RabbitMQ 3.10.8 makes of a 7 with each unit (rabbit_resource_monitor_misc, asked of it).
RECORDED = {
    "": 7,
    **dict.fromkeys(["k", "K", "kib", "kiB", "KIB"], 7168),
    **dict.fromkeys(["kb", "kB", "KB", "Kb"], 7000),
    **dict.fromkeys(["m", "M", "MiB", "mib", "MIB"], 7340032),
    **dict.fromkeys(["MB", "mb", "Mb"], 7000000),
    **dict.fromkeys(["g", "G", "GiB", "gib", "GIB"], 7516192768),
    **dict.fromkeys(["GB", "gb", "Gb"], 7000000000),
}


@pytest.mark.parametrize("unit, size", RECORDED.items())
def test_units_are_those_of_rabbitmq(unit: str, size: int) -> None:
    assert parse_size("7" + unit) == size


def test_units_it_does_not_know() -> None:
    assert parse_size("7KiB") == 7168  # fails there
    assert parse_size("7TB") == 7_000_000_000_000
    assert parse_size("7TiB") == 7 << 40


@pytest.mark.parametrize("text", ["", "GB", "-1", "1.5GB", "7 MB", "7b", "7iB", "7PB", "7Q", "٣"])
def test_what_is_no_size(text: str) -> None:
    assert parse_size(text) is None


def test_more_than_any_disk_is_no_size() -> None:
    assert parse_size(f"{1 << 62}") == 1 << 62
    assert parse_size(f"{(1 << 62) + 1}") is None
    assert parse_size("9" * 19 + "TB") is None


@pytest.mark.parametrize(
    "text, limit",
    [
        ("0", MemoryLimit(0.0)),
        ("0.4", MemoryLimit(0.4)),
        ("1", MemoryLimit(1.0)),
        ("1e-3", MemoryLimit(0.001)),
        ("2", None),
        ("999999", None),
        ("1000000", MemoryLimit(0.0, 1_000_000)),
        ("1k", MemoryLimit(0.0, 1024)),
        ("1.5", None),
        ("-0.1", None),
        ("nan", None),
        ("", None),
    ],
)
def test_memory(text: str, limit: MemoryLimit | None) -> None:
    assert parse_memory_limit(text) == limit


@pytest.mark.parametrize(
    "text, limit",
    [
        ("auto", DiskLimit()),
        ("0", DiskLimit(0)),
        ("50MB", DiskLimit(50_000_000)),
        ("mem_relative 0", DiskLimit(-1, 0.0)),
        ("mem_relative 1.5", DiskLimit(-1, 1.5)),
        ("mem_relative", None),
        ("mem_relative -1", None),
        ("1.5", None),
        ("", None),
    ],
)
def test_disk(text: str, limit: DiskLimit | None) -> None:
    assert parse_disk_limit(text) == limit


def test_limits_of_a_machine() -> None:
    assert MemoryLimit(0.4).bytes_of(1000) == 400
    assert MemoryLimit(0.0, 700).bytes_of(1000) == 700
    assert MemoryLimit(0.0, 7000).bytes_of(1000) == 1000
    assert DiskLimit(700).bytes_of(1000, 10) == 700
    assert DiskLimit(-1, 1.5).bytes_of(1000, 10) == 1500
    assert DiskLimit().bytes_of(1000, 10) == 50_000_000
    assert DiskLimit().bytes_of(1000, 50_000_000_000) == 1_000_000_000
    assert DiskLimit().bytes_of(1000, 1 << 50) == 2_000_000_000


@given(st.text("0123456789.kKiIbBmMgGtT e-", max_size=8))
def test_whatever_is_written_is_bytes_or_nothing(text: str) -> None:
    size = parse_size(text)
    assert size is None or 0 <= size <= 1 << 62
    limit = parse_memory_limit(text)
    assert limit is None or 0 <= limit.bytes_of(1 << 40) <= 1 << 40
