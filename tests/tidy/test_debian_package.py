"""The Debian package, as far as reading its parts tells; packaging/check_deb.sh tries it."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from penstock.settings.settings import DECLARED, OTHER_VARIABLES

REPOSITORY = Path(__file__).resolve().parents[2]
PACKAGING = REPOSITORY / "packaging"
DEBIAN = PACKAGING / "debian"
BUILD = PACKAGING / "build_deb.sh"
PROGRAMS = ("build_deb.sh", "check_deb.sh", "check_wheel.sh", "roots.sh")


@pytest.mark.parametrize("name", ["postinst", "prerm", "postrm"])
def test_a_maintainer_script_is_sound(name: str) -> None:
    script = DEBIAN / name
    assert script.read_text().startswith("#!/bin/sh\nset -e\n"), "a step that fails is to fail dpkg"
    subprocess.run(["sh", "-n", str(script)], check=True, timeout=20)


@pytest.mark.parametrize("name", PROGRAMS)
def test_bash_can_read_it(name: str) -> None:
    subprocess.run(["bash", "-n", str(PACKAGING / name)], check=True, timeout=20)


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_files_it_names_are_there(name: str) -> None:
    named = re.findall(r"\bpackaging/[\w./-]*\w", (PACKAGING / name).read_text())
    assert [path for path in named if not (REPOSITORY / path).exists()] == []


def test_the_unit_starts_what_the_package_brings() -> None:
    build = BUILD.read_text()
    assert "packaging/systemd/penstock.service" in build
    (command,) = re.findall(
        r"^ExecStart=(\S+)", (PACKAGING / "systemd" / "penstock.service").read_text(), re.MULTILINE
    )
    assert command == "/usr/bin/penstock"
    assert '"$STAGE/usr/bin/$script"' in build


def test_every_place_in_the_control_file_is_filled() -> None:
    places = set(re.findall(r"@\w+@", (DEBIAN / "control").read_text()))
    assert places == set(re.findall(r"s/(@\w+@)/", BUILD.read_text()))


def test_the_settings_file_shows_the_defaults() -> None:
    text = (DEBIAN / "penstock.env").read_text()
    lines = re.findall(r"^#?(PENSTOCK_\w+)=(.*)", text, re.MULTILINE)
    shown = {name: value for name, value in lines if name not in OTHER_VARIABLES}
    defaults = {setting.environment_name: setting.default for setting in DECLARED.values()}
    assert len(shown) >= 5
    for name, value in shown.items():
        default = defaults[name]
        assert value == (str(default).lower() if isinstance(default, bool) else str(default)), name


def test_the_settings_file_is_the_one_the_unit_reads() -> None:
    unit = (PACKAGING / "systemd" / "penstock.service").read_text()
    assert "EnvironmentFile=-/etc/penstock/penstock.env\n" in unit
    build = BUILD.read_text()
    assert 'packaging/debian/penstock.env -t "$STAGE/etc/penstock"' in build
    assert "echo /etc/penstock/penstock.env >" in build
