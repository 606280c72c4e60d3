"""What packages Penstock: every path, port and name it mentions is there, and its programs run.

No container is built here: a fault that only a build would find is not found.
"""

from __future__ import annotations

import configparser
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from penstock.cli.main import COMMANDS
from penstock.core.settings import DECLARED, OTHER_VARIABLES

REPOSITORY = Path(__file__).resolve().parents[2]
DOCKER = REPOSITORY / "packaging" / "docker"
UNIT = REPOSITORY / "packaging" / "systemd" / "penstock.service"
ENTRYPOINT = DOCKER / "entrypoint.sh"


def instructions() -> list[tuple[str, str]]:
    """Of the Dockerfile: word and the rest, continued lines joined, comments dropped."""
    text = (DOCKER / "Dockerfile").read_text()
    text = re.sub(r"^\s*#.*\n", "", text, flags=re.MULTILINE).replace("\\\n", " ")
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return [(word, rest.strip()) for word, _, rest in (line.partition(" ") for line in lines)]


def of(word: str) -> list[str]:
    return [rest for found, rest in instructions() if found == word]


def test_what_the_dockerfile_copies_is_there() -> None:
    for rest in of("COPY"):
        *sources, _target = [part for part in rest.split() if not part.startswith("--")]
        if "--from=" in rest:
            assert sources == ["/opt/penstock"]
            continue
        for source in sources:
            assert (REPOSITORY / source).exists(), source


def test_the_image_is_what_the_guide_promises() -> None:
    assert of("USER") == ["5672:5672"]
    assert any("--uid 5672" in rest for rest in of("RUN"))
    assert of("STOPSIGNAL") == ["SIGTERM"]
    (volume,) = of("VOLUME")
    (environment,) = of("ENV")
    assert f"PENSTOCK_DATA_DIR={volume}" in environment
    keys = re.findall(r"(PENSTOCK_\w+)=", environment)
    assert set(keys) <= {s.environment_name for s in DECLARED.values()} | set(OTHER_VARIABLES)
    ports = {int(port) for port in of("EXPOSE")[0].split()}
    names = ["amqp_port", "ssl_port", "http_port", "prometheus_port", "nsq_port", "nsq_http_port"]
    assert ports == {DECLARED[name].default for name in names}
    (health,) = of("HEALTHCHECK")
    program, command = re.findall(r'"([^"]+)"', health)
    assert program == "penstock"
    assert command in COMMANDS
    (entry,) = of("ENTRYPOINT")
    assert entry.strip('[]"') in of("COPY")[-1]
    assert re.findall(r'"([^"]+)"', of("CMD")[0])[0] in COMMANDS


@pytest.fixture
def fake(tmp_path: Path) -> Path:
    """A ``penstock`` that says what it was given."""
    program = tmp_path / "penstock"
    program.write_text('#!/bin/sh\necho "$@ bind=${PENSTOCK_BIND:-unset}"\n')
    program.chmod(0o755)
    return tmp_path


@pytest.mark.parametrize(
    "arguments, environment, said",
    [
        (["serve"], {}, "serve bind=0.0.0.0"),
        ([], {}, "serve bind=0.0.0.0"),
        (["serve", "--amqp-port", "1"], {}, "serve --amqp-port 1 bind=0.0.0.0"),
        (["serve"], {"PENSTOCK_BIND": "::"}, "serve bind=::"),
        (["serve"], {"RABBITMQ_NODE_IP_ADDRESS": "10.0.0.1"}, "serve bind=10.0.0.1"),
        (["ping"], {}, "ping bind=unset"),
        (["sh", "-c", "echo inside"], {}, "inside"),
    ],
)
def test_the_entrypoint(
    fake: Path, arguments: list[str], environment: dict[str, str], said: str
) -> None:
    done = subprocess.run(
        [str(ENTRYPOINT), *arguments],
        env={"PATH": f"{fake}:{os.environ['PATH']}", **environment},
        capture_output=True,
        text=True,
        check=True,
        timeout=20,
    )
    assert done.stdout == said + "\n"


def unit() -> configparser.ConfigParser:
    parsed = configparser.ConfigParser(strict=False, interpolation=None)
    parsed.optionxform = str  # type: ignore[assignment, method-assign]
    parsed.read_string(UNIT.read_text())
    return parsed


def test_the_unit_asks_for_what_the_broker_does() -> None:
    service = unit()["Service"]
    assert service["Type"] == "notify"
    assert service["ExecReload"].endswith("-HUP $MAINPID")
    assert float(service["WatchdogSec"]) >= 10
    default = DECLARED["stop_timeout_s"].default
    assert isinstance(default, int)
    assert float(service["TimeoutStopSec"]) > default, "systemd would kill an orderly stop"
    assert service["StateDirectory"] == "penstock"
    assert int(service["OOMScoreAdjust"]) < 0


def test_systemd_finds_nothing_wrong(tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed (Debian: apt-get install systemd)")
    # Its program is not installed on this machine, and nothing else may be wrong.
    copy = tmp_path / UNIT.name
    copy.write_text(UNIT.read_text().replace("/opt/penstock/bin/penstock", "/bin/true"))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(copy)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={**os.environ, "SYSTEMD_UNIT_PATH": f"{tmp_path}:/lib/systemd/system"},
    )
    own = [line for line in done.stderr.splitlines() if UNIT.name in line]
    assert own == []
    assert done.returncode == 0, done.stderr
