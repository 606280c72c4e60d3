"""Thresholds in Erlang terms, as articles about RabbitMQ print them.

``penstock config check`` takes each file as it is, and the settings mean what the article says.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from click.testing import CliRunner

from penstock.cli.config_files import settings_from
from penstock.cli.main import cli
from penstock.settings.settings import Settings

GIB = 1024**3
MACHINE_BYTES = 8 * GIB
FORM = """[
{
rabbit, [
%s
]
}
].
"""


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of the machine would have warnings of their own."""
    for name in [name for name in os.environ if name.startswith(("PENSTOCK_", "RABBITMQ_"))]:
        monkeypatch.delenv(name)


def check(path: Path, *lines: str) -> tuple[Settings, str]:
    """The settings, and the warnings of ``penstock config check``, which finds nothing wrong."""
    path.write_text(FORM % ",\n".join(lines))
    result = CliRunner().invoke(cli, ["config", "check", "--config", str(path)])
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith(f"ok: {len(lines)} of ")
    return settings_from(str(path), {}, {}), result.stderr


@pytest.mark.parametrize(
    "value, limit_bytes",
    [
        ("0.4", int(0.4 * MACHINE_BYTES)),
        ("{absolute, 1073741824}", GIB),
        ('{absolute, "1024M"}', GIB),
        ('{absolute, "1024MiB"}', GIB),
        ('{absolute, "1048576k"}', GIB),
        ('{absolute, "1GB"}', 10**9),
        ("0", 0),
    ],
)
def test_a_memory_threshold(tmp_path: Path, value: str, limit_bytes: int) -> None:
    settings, warnings = check(
        tmp_path / "rabbitmq.config", f"{{vm_memory_high_watermark, {value}}}"
    )
    assert settings.vm_memory_high_watermark.bytes_of(MACHINE_BYTES) == limit_bytes
    assert warnings == ""


def test_a_share_above_1_is_all_memory_and_said(tmp_path: Path) -> None:
    settings, warnings = check(tmp_path / "rabbitmq.config", "{vm_memory_high_watermark, 3}")
    assert settings.vm_memory_high_watermark.bytes_of(MACHINE_BYTES) == MACHINE_BYTES
    assert "RabbitMQ takes a share above 1 as 1.0" in warnings


@pytest.mark.parametrize("ratio", ["0.75", "1.5"])
def test_where_paging_begins(tmp_path: Path, ratio: str) -> None:
    """Above 1 it never does."""
    settings, warnings = check(
        tmp_path / "rabbitmq.config",
        f"{{vm_memory_high_watermark_paging_ratio, {ratio}}}",
        "{vm_memory_high_watermark, 0.4}",
    )
    assert settings.vm_memory_high_watermark_paging_ratio == float(ratio)
    assert settings.vm_memory_high_watermark.bytes_of(MACHINE_BYTES) == int(0.4 * MACHINE_BYTES)
    assert warnings == ""


@pytest.mark.parametrize(
    "value, limit_bytes",
    [
        ("1000000000", 10**9),
        ('"1GB"', 10**9),
        ("{mem_relative, 1.0}", MACHINE_BYTES),
    ],
)
def test_a_disk_threshold(tmp_path: Path, value: str, limit_bytes: int) -> None:
    settings, warnings = check(tmp_path / "rabbitmq.config", f"{{disk_free_limit, {value}}}")
    assert settings.disk_free_limit.bytes_of(MACHINE_BYTES, 100 * GIB) == limit_bytes
    assert warnings == ""
