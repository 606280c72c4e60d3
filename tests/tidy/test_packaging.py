"""What packages Penstock: every path, port and name it mentions is there, and its programs run.

No container is built here, and no chart rendered: packaging/check_image.sh and check_chart.sh do.
"""

from __future__ import annotations

import configparser
import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

from penstock.cli.main import COMMANDS
from penstock.settings.settings import DECLARED, OTHER_VARIABLES

REPOSITORY = Path(__file__).resolve().parents[2]
DOCKER = REPOSITORY / "packaging" / "docker"
UNIT = REPOSITORY / "packaging" / "systemd" / "penstock.service"
ENTRYPOINT = DOCKER / "entrypoint.sh"
COMPOSE = REPOSITORY / "packaging" / "compose"
CHART = REPOSITORY / "packaging" / "helm" / "penstock"
NSQ_PORTS = {
    setting.environment_name
    for key, setting in DECLARED.items()
    if key.startswith("nsq") and key.endswith("_port") and setting.default
}
"""Those that are open unless a setting closes them."""


def instructions() -> list[tuple[str, str]]:
    """Of the Dockerfile: word and the rest, continued lines joined, comments dropped."""
    text = (DOCKER / "Dockerfile").read_text()
    text = re.sub(r"^\s*#.*\n", "", text, flags=re.MULTILINE).replace("\\\n", " ")
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return [(word, rest.strip()) for word, _, rest in (line.partition(" ") for line in lines)]


def of(word: str) -> list[str]:
    return [rest for found, rest in instructions() if found == word]


def copied() -> tuple[list[str], list[str]]:
    """From the repository, and from earlier stages."""
    here: list[str] = []
    earlier: list[str] = []
    for rest in of("COPY"):
        *sources, _target = [part for part in rest.split() if not part.startswith("--")]
        (earlier if "--from=" in rest else here).extend(sources)
    return here, earlier


def test_what_the_dockerfile_copies_is_there() -> None:
    here, earlier = copied()
    assert [source for source in here if not (REPOSITORY / source).exists()] == []
    assert earlier == ["/wheels", "/opt/penstock"], "no source and no compiler in what runs"


def test_only_what_is_copied_goes_to_the_builder() -> None:
    """The image is built from the source: no compiled file of this machine is in the way."""
    lines = (REPOSITORY / ".dockerignore").read_text().splitlines()
    rules = [line for line in lines if line and not line.startswith("#")]
    assert rules[0] == "*"
    let_in = {rule[1:] for rule in rules if rule.startswith("!")}
    here, _ = copied()
    assert {place for place in let_in if f"{place}/*" not in rules} == set(here)
    assert {"**/*.so", "**/__pycache__"} <= set(rules)


def test_the_base_image_is_named_by_its_digest() -> None:
    base = next(rest for rest in of("ARG") if rest.startswith("BASE="))
    assert re.fullmatch(r"BASE=python:3\.1\d\.\d+-slim-bookworm@sha256:[0-9a-f]{64}", base)
    assert {stage.split(" AS ")[0] for stage in of("FROM")} == {"${BASE}"}


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
    names = ["amqp_port", "ssl_port", "http_port", "prometheus_port"]
    assert ports == {DECLARED[name].default for name in names}
    closed = set(re.findall(r"(PENSTOCK_\w+)=0\b", environment))
    assert closed == NSQ_PORTS, "NSQ has no password: no port of it is open unless it is asked for"
    (health,) = of("HEALTHCHECK")
    program, command = re.findall(r'"([^"]+)"', health)
    assert program == "penstock"
    assert command in COMMANDS
    (entry,) = of("ENTRYPOINT")
    assert entry.strip('[]"') in of("COPY")[-1]
    assert re.findall(r'"([^"]+)"', of("CMD")[0])[0] in COMMANDS


def test_compose_and_chart_know_the_ports_and_paths() -> None:
    scraped = re.findall(r"targets: \[\"broker:(\d+)\"\]", (COMPOSE / "prometheus.yml").read_text())
    assert scraped == [str(DECLARED["prometheus_port"].default)]
    text = (CHART / "templates" / "statefulset.yaml").read_text()
    named = {f"PENSTOCK_{name}_PORT" for name in re.findall(r'"(NSQ\w+)"', text)}
    assert named | {"PENSTOCK_NSQ_PORT"} == NSQ_PORTS
    ports = dict(re.findall(r"\{name: (\w+), containerPort: (\d+)\}", text))
    keys = {"amqp": "amqp", "amqps": "ssl", "http": "http", "metrics": "prometheus", "nsq": "nsq"}
    keys["cluster"] = "cluster"
    assert ports == {name: str(DECLARED[f"{key}_port"].default) for name, key in keys.items()}


def test_pip_is_told_to_install_our_distribution_and_compiles_nothing_again() -> None:
    """`penstock` on the index is another project's (B15); `.` is the program anew (B16)."""
    name = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]["name"]
    texts = [REPOSITORY / "README.md", REPOSITORY / "packaging" / "description.md"]
    texts += [*(REPOSITORY / "docs").rglob("*.md"), *(REPOSITORY / "src").rglob("*.py")]
    said = [
        word
        for text in texts
        for arguments in re.findall(r"pip install ([^`\n#]+)", text.read_text())
        for word in arguments.replace("'", " ").split()
        if "penstock" in word or word.startswith(".")
    ]
    wheel = f"dist/{name.replace('-', '_')}-*.whl"
    assert {name, f"{name}[spark]", wheel} <= set(said)
    extras = {f"{name}[{extra}]" for extra in ("spark", "spark-jre", "oauth2", "crypto", "otel")}
    assert set(said) <= {name, wheel} | extras


def test_image_chart_and_distribution_have_one_version() -> None:
    pyproject = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())
    version = pyproject["project"]["version"]
    chart = (CHART / "Chart.yaml").read_text()
    assert f"\nversion: {version}\n" in chart
    assert f'\nappVersion: "{version}"\n' in chart
    assert f"image: penstock-broker:{version}\n" in (COMPOSE / "compose.yaml").read_text()


SCRIPTS = ["check_image.sh", "check_compose.sh", "check_chart.sh", "run_chart.sh"]


@pytest.mark.parametrize("name", SCRIPTS)
def test_the_scripts_can_be_read_by_bash(name: str) -> None:
    script = REPOSITORY / "packaging" / name
    assert os.access(script, os.X_OK)
    subprocess.run(["bash", "-n", str(script)], check=True, timeout=20)


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
    copy.write_text(UNIT.read_text().replace("/usr/bin/penstock", "/bin/true"))
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
