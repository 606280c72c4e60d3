"""Each command on a page of the documentation is run as it stands, or says which test does that.

Before a command, everything that the pages' commands name is made anew (``prepare``); so their
order does not matter.  Places of the pages' machines become those of the test (``PLACES``).
"""

from __future__ import annotations

import io
import json
import re
import shlex
import urllib.request
from base64 import b64encode
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import pika
import pytest
from click.testing import CliRunner

from penstock.cli.main import cli
from penstock.ctl.main import run as ctl
from tests.helpers.broker_process import free_port
from tests.helpers.live_broker import REPOSITORY, LiveBroker
from tests.tidy.test_document_claims import TEXTS, words_of

FENCED = re.compile(r"^```[a-z]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
INDENTED = re.compile(r"^    \S.*\n(?:^    .*\n)*", re.MULTILINE)
COMMAND = re.compile(r"(?:\$ |eval \"\$\()?((?:penstock|penstockctl|curl) .*)")
GRAMMAR = re.compile(r"penstock(ctl)? [\w -]*(\[|COMMAND)|penstock(ctl)?( [A-Z]+)+$")

WHOLE = {
    "tutorials": "tests/interop/test_tutorials.py",
    "quickstart": "tests/test_quickstart.py",
    "differences": "tests/conformance/test_differences_page.py",
    "guide/links": "tests/links/test_links_guide.py",
    "guide/migrate": "tests/cli/test_migrate.py",
    "guide/coming-from": "tests/cli/test_coming_from.py",
}
"""Pages that a test of their own runs, block by block."""
ELSEWHERE = {
    r"penstock serve ": "tests/helpers/live_broker.py",
    r"penstock (nsqd|nsqlookupd) ": "tests/cli/test_nsqd.py",
    r"penstock (audit|repair) ": "tests/cli/test_audit_command.py",
    r"penstock migrate nsqd": "tests/cli/test_migrate_nsqd.py",
    r"penstock migrate (definitions|queues|verify)": "tests/cli/test_migrate.py",
    r"penstock bench ": "tests/cli/test_bench.py",
    r"penstock top ": "tests/cli/test_top.py",
    r"penstock queues .*--watch": "tests/cli/test_cli.py",
    r"penstock cluster rebalance": "tests/cli/test_mirrors.py",
    r"penstock cluster (grow|shrink)": "tests/ctl/test_members.py",
    r"penstock cluster refound": "tests/cluster/test_live_lost_etcd.py",
    r"penstock queue (sync|cancel-sync|hand-over|mirrors) ": "tests/cli/test_mirrors.py",
    r"penstockctl forget_cluster_node": "tests/cluster/test_live_cluster.py",
    r"penstock user unlock ": "tests/node/test_audit_trail.py",
    r"penstock (drain|revive|config) ": "tests/node/test_operating_live.py",
    r"curl .*log-level": "tests/node/test_operating_live.py",
    r"curl .*127.0.0.1:4151": "tests/interop/test_nsq_quickstart.py",
    r"penstock queue (pause|resume) nsq": "tests/interop/test_nsq_quickstart.py",
    r"penstock pipeline (prepare|init|py-files|run)": "tests/spark/launcher/test_without_spark.py",
    r"penstock pipeline (flow|latency|list)": "tests/spark/reports/test_event_pipelines.py",
    r"penstock pipeline doctor": "tests/spark/reports/test_doctor.py",
    r"penstock pipeline archive": "tests/spark/jobs/test_pipeline.py",
    r"penstock pipeline compact": "tests/spark/tables/test_compaction.py",
    r"penstock pipeline replay": "tests/spark/jobs/test_replay.py",
    r"penstock pipeline outbox": "tests/spark/jobs/test_outbox.py",
    r"penstock pipeline dlq": "tests/spark/jobs/test_redrive.py",
    r"penstock pipeline validate": "tests/spark/jobs/test_validate.py",
    r"penstock pipeline sql": "tests/spark/reports/test_sql_query.py",
}
"""What takes several brokers, a Spark or a while, or ends by a signal, and where it is run."""

INPUT = {
    "penstock user add": "secret\n",
    "penstock user password": "secret\n",
    "penstockctl encode": "a phrase\n",
    "penstock publish -": '{"order": 7}',
}
BEFORE = {
    "penstock queue declare orders": ("queue", "delete", "orders"),
    "penstock queue delete orders": ("queue", "purge", "orders"),
    "penstock exchange declare orders": ("exchange", "delete", "orders"),
    "penstock exchange delete orders": ("unbind", "orders", "invoices", "--key", "order.*"),
    "penstock vhost add shop": ("vhost", "delete", "shop", "--yes"),
    "penstock user add anna": ("user", "delete", "anna"),
    "penstock user drop-password anna": ("user", "password", "anna", "--add"),
    "penstock user drop-password billing": ("user", "password", "billing", "--add"),
    "penstockctl add_super_stream": ("exchange", "delete", "orders"),
    "penstock bind orders": ("unbind", "orders", "invoices", "--key", "order.*"),
}
"""What is done before a command, beside what is done before all."""


class Told(NamedTuple):
    page: str
    line: str


def told() -> list[Told]:
    """The command lines of all pages that are not tested as a whole."""
    found: list[Told] = []
    for page, text in TEXTS.items():
        if re.match(rf"docs/({'|'.join(WHOLE)})", page):
            continue
        for block in [*FENCED.findall(text), *INDENTED.findall(FENCED.sub("", text))]:
            for line in re.sub(r"\\\n\s*", "", block).splitlines():
                command = COMMAND.match(line.strip())
                if command is not None and not GRAMMAR.match(command[1]):
                    spoken = re.split(r"\s{2,}|\s#", command[1])[0]
                    found.append(Told(page, spoken.removesuffix(')"').strip()))
    return sorted(set(found))


def is_elsewhere(line: str) -> bool:
    return any(re.match(pattern, f"{line} ") for pattern in ELSEWHERE)


TOLD = told()
HERE = {one.line: one for one in TOLD if not is_elsewhere(one.line)}


class Stage:
    """The broker, and what the commands find there."""

    def __init__(self, directory: Path) -> None:
        self.metrics_port = free_port()
        more = ("--prometheus-port", str(self.metrics_port))
        self.broker = LiveBroker(directory, more)
        self.backup = directory / "backup"
        self.count = 0

    def start(self) -> None:
        self.broker.start()
        self.connect()

    def connect(self) -> None:
        self.connection = pika.BlockingConnection(
            pika.ConnectionParameters(
                port=self.broker.amqp_port, client_properties={"product": "x"}
            )
        )
        self.channel = self.connection.channel()

    def stop(self) -> None:
        self.connection.close()
        self.broker.stop()

    def penstock(self, words: list[str], given: str = "") -> Any:
        environment = {"PENSTOCK_DATA_DIR": str(self.broker.data_dir)}
        return CliRunner().invoke(cli, words, env=environment, input=given)

    def prepare(self, line: str) -> None:
        """Queues of twenty messages, one dead letter, exchanges, users, policies: for ``line``."""
        if re.search("orders|dead", line):
            self.prepare_queues()
        if re.search("anna|billing|shop|tests|policy", line):
            self.prepare_people()

    def prepare_queues(self) -> None:
        channel = self.channel
        for name in ("orders", "parked", "examples", "invoices", "orders.dead", "dead"):
            channel.queue_delete(name)
        channel.exchange_delete("orders")
        channel.exchange_declare("orders", "topic", durable=True)
        dead = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
        for name in ("parked", "examples", "invoices", "orders.dead", "dead"):
            channel.queue_declare(name, durable=True)
        channel.queue_declare("orders", durable=True, arguments=dead)
        channel.queue_bind("invoices", "orders", "order.*")
        channel.basic_publish("", "orders", b"timed out")
        tag = channel.basic_get("orders")[0].delivery_tag
        channel.basic_reject(tag, requeue=False)
        for _ in range(20):
            channel.basic_publish("", "orders", b"customer 4711")

    def prepare_people(self) -> None:
        for words in (
            ["vhost", "add", "shop"], ["vhost", "add", "tests"],
            ["user", "add", "anna"], ["user", "add", "billing"],
            ["user", "allow", "anna", "--vhost", "shop"],
            ["user", "allow", "guest", "--vhost", "shop"],
            ["policy", "set", "short", "^tmp", '{"max-length": 5}'],
        ):  # fmt: skip
            self.penstock(words, "secret\n")  # it may be there

    def curl(self, words: list[str]) -> None:
        url = words[-1] if "-d" not in words or words[-2] != "-d" else words[-3]
        url = url if "://" in url else f"http://{url}"
        options = dict(pairwise(words))
        body = options.get("-d")
        method = options.get("-X", "POST" if body else "GET")
        request = urllib.request.Request(url, body and body.encode(), method=method)  # type: ignore[arg-type]
        log_in = options.get("-u", "guest:guest")
        log_in = log_in if ":" in log_in else "guest:guest"
        request.add_header("Authorization", f"Basic {b64encode(log_in.encode()).decode()}")
        with urllib.request.urlopen(request, timeout=10) as answer:
            assert answer.status in (200, 201, 204)


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    made = Stage(tmp_path_factory.mktemp("pages"))
    made.start()
    yield made
    made.stop()


@pytest.mark.parametrize(
    "one", HERE.values(), ids=lambda one: f"{Path(one.page).stem}: {one.line}"[:90]
)
def test_a_command_of_a_page(one: Told, stage: Stage, tmp_path: Path, monkeypatch: Any) -> None:
    stage.prepare(one.line)
    for start, words in BEFORE.items():
        if one.line.startswith(start):
            assert stage.penstock(list(words), "second\n").exit_code == 0
    monkeypatch.chdir(tmp_path)
    if "import backup.json" in one.line:
        stage.penstock(["definitions", "export", "backup.json"])
    line = one.line.replace("/mnt/backup/n1", str(tmp_path / "n1"))
    line = line.replace("--follow 30", "--follow 1")
    line = re.sub(r"(localhost|127\.0\.0\.1):15672", stage.broker.http_url[7:], line)
    line = line.replace("localhost:15692", f"127.0.0.1:{stage.metrics_port}")
    if "127.0.0.1:41000" in line:
        (row,) = json.loads(stage.penstock(["connections", "-o", "json"]).stdout)
        line = re.sub(r"'127.*?'", shlex.quote(row["name"]), line)
    program, *words = words_of(line)
    given = next((text for start, text in INPUT.items() if line.startswith(start)), "")
    if program == "curl":
        stage.curl(words)
        return
    if program == "penstockctl":
        monkeypatch.setenv("PENSTOCK_DATA_DIR", str(stage.broker.data_dir))
        monkeypatch.setattr("sys.stdin", io.StringIO(given))
        said = io.StringIO()
        assert ctl(words, said, said) == 0, said.getvalue()
        return
    result = stage.penstock(words, given)
    assert result.exit_code == 0, result.output
    if words[0] == "close-connection":
        with pytest.raises(pika.exceptions.ConnectionClosedByBroker, match="moving"):
            stage.connection.sleep(10)
        stage.connect()


def test_tests_of_other_commands_are_there() -> None:
    assert len(HERE) > 60
    assert all((REPOSITORY / test).is_file() for test in WHOLE.values())
    for pattern, test in ELSEWHERE.items():
        text = (REPOSITORY / test).read_text(encoding="utf-8")
        lines = [one.line for one in TOLD if re.match(pattern, f"{one.line} ")]
        assert lines, pattern
        for line in lines:
            words = re.findall(r"[a-z][a-z_-]+", line)
            assert line.startswith("curl") or {*words[1:3]} & {*re.findall(r"[\w-]+", text)}, line
