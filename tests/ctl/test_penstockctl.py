"""penstockctl beside what rabbitmqctl says: where it looks, what it refuses, what it costs."""

from __future__ import annotations

import io
import json
import os
import re
import resource
import socket
import stat
import subprocess
import sys
import time
from importlib import import_module
from pathlib import Path

import pika
import pytest

from penstock import __version__
from penstock.client.local_node import choose_place, find_control
from penstock.client.requests import REQUESTS
from penstock.core.control import CONTROL_FILE, Control, read, written
from penstock.ctl.main import run
from penstock.ctl.options import FLAG, NUMBER, TEXT, parse
from penstock.ctl.verbs import ALIASES, VERBS
from penstock.management.http.access import shows_token
from penstock.node.startup_progress import StartingPage, StartProgress
from tests.ctl.conftest import penstockctl
from tests.helpers.broker_process import free_port
from tests.helpers.live_broker import LiveBroker
from tests.helpers.range_line import RangeLine
from tests.helpers.sim_files import SimFileSystem

HELP = json.loads(Path(__file__).with_name("recorded_help.json").read_text())
BUDGET_S = 0.2
WORDS = [
    (word, programs.split(","), usage)
    for line in Path(__file__).with_name("rabbitmq-words.txt").read_text().splitlines()
    if not line.startswith("#")
    for word, programs, usage in [(line + "  ").split(" ", 2)]
]
OF_PLUGINS = (
    *("delete_shovel", "restart_shovel", "shovel_status", "reset_stats_db"),
    "clear_auth_backend_cache",
    *("federation_status", "restart_federation_link", "set_stream_retention_policy"),
)
"""The recorded node ran without them."""
PROGRAMS = ("rabbitmqctl", "rabbitmq-diagnostics", "rabbitmq-upgrade", "rabbitmq-queues")


# -- usage -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name in VERBS if name not in OF_PLUGINS])
def test_usage_is_rabbitmqs(name: str) -> None:
    """Each verb is one of RabbitMQ's programs, and takes what it takes there."""
    newer = {word: usage for word, _, usage in WORDS if usage.strip()}
    recorded = " [--quiet] " + newer.get(name, "")
    if name not in newer:
        recorded = next(HELP[program][name] for program in PROGRAMS if name in HELP[program])
    out = io.StringIO()
    assert run(["help", name], out, out, {}) == 0
    line = next(line for line in out.getvalue().splitlines() if line.startswith("penstockctl"))
    if name == "list_node_auth_attempt_stats":  # its usage has two programs in it there
        recorded = f"rabbitmqctl [--quiet] {name} [--by-source]"
    assert _behind_the_verb(line) == _behind_the_verb(recorded)


def _behind_the_verb(usage: str) -> str:
    """RabbitMQ misspells the verb in some usages."""
    return " ".join(usage.partition(" [--quiet] ")[2].split()[1:])


@pytest.mark.parametrize("name", VERBS)
def test_every_verb_has_somebody_who_carries_it_out(name: str) -> None:
    file, _, function = VERBS[name].target.partition(":")
    module = import_module(f"penstock.ctl.{file}")
    assert hasattr(module, function) or name in module.ROWS
    assert hasattr(module, function) or name in REQUESTS or file == "refused"


def test_each_word_of_rabbitmqs_programs_is_carried_out_or_refused() -> None:
    """Of 3.10.8, 3.13.7 and 4.3.6."""
    older = {word for program in PROGRAMS for word in HELP[program] if word}
    missing = (older | {word for word, _, _ in WORDS}) - set(VERBS) - set(ALIASES)
    assert missing == set()


@pytest.mark.parametrize(
    "name", [name for name in VERBS if VERBS[name].target.startswith("refused")]
)
def test_a_refused_word_says_why(name: str, live: LiveBroker) -> None:
    words = [name, *(["x"] * _least(VERBS[name].usage))]
    said = penstockctl(live.data_dir, *words)
    assert said.code != 0 or name == "hipe_compile"
    assert len(said.err) > 40 or name == "hipe_compile"


def _least(usage: str) -> int:
    """How many words must follow."""
    required = re.sub(r"\[[^]]*\]", "", usage)
    return len(
        re.findall(r"<[^>]*>|\b(?:value|passphrase|disc)\b", required.replace(" | ram>", ">"))
    )


@pytest.mark.parametrize(
    "line, code, said",
    [
        ("", 64, "Available commands:"),
        ("-q", 64, "Available commands:"),
        ("--help", 0, "Available commands:"),
        ("--version", 0, __version__),
        ("list_users --help", 0, "list_users [--no-table-headers]"),
        ("list_users -?", 0, "list_users [--no-table-headers]"),
    ],
)
def test_without_a_verb(line: str, code: int, said: str) -> None:
    """Usage that was asked for goes to standard output, else to standard error."""
    out, err = io.StringIO(), io.StringIO()
    assert run(line.split(), out, err, {}) == code
    assert said in (err if code else out).getvalue()
    assert (out if code else err).getvalue() == ""


def test_options_are_read_as_elixir_reads_them() -> None:
    switches = {"vhost": TEXT, "timeout": NUMBER, "quiet": FLAG, "silent": FLAG}
    line = [
        "-p",
        "a",
        "list",
        "--timeout=5",
        "--no-quiet",
        "x",
        "-0.1",
        "--silent",
        "--",
        "--vhost",
    ]
    assert parse(line, switches) == (
        ["list", "x", "-0.1", "--vhost"],
        {"vhost": "a", "timeout": 5, "quiet": False, "silent": True},
        [],
    )
    wrong = parse(["--timeout", "x", "--vhost", "--nosuch=1", "-z", "--quiet=maybe"], switches)
    assert wrong.invalid == [
        ("--timeout", "x"),
        ("--vhost", ""),
        ("--nosuch", "1"),
        ("-z", ""),
        ("--quiet", "maybe"),
    ]


# -- which node ----------------------------------------------------------------------------------


def test_the_control_file_is_for_its_owner_alone(live: LiveBroker) -> None:
    path = live.data_dir / CONTROL_FILE
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    control = find_control({"PENSTOCK_DATA_DIR": str(live.data_dir)})
    assert control is not None
    assert control.pid == live.pid
    assert len(control.token) >= 32


def test_what_is_no_control_file_is_passed_over(tmp_path: Path) -> None:
    control = Control("http://127.0.0.1:1", "penstock@x", 1, "secret")
    assert read(written(control)) == control
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait(30)
    left_behind = written(control._replace(pid=gone.pid))
    for text in (
        left_behind,
        "",
        "[]",
        "{}",
        '{"url": 1, "node": "n", "pid": 2, "token": "t"}',
        "\0",
    ):
        (tmp_path / CONTROL_FILE).write_text(text)
        assert find_control({"PENSTOCK_DATA_DIR": str(tmp_path)}) is None, text


def test_the_token_goes_nowhere_but_to_its_own_node(live: LiveBroker) -> None:
    environment = {"PENSTOCK_DATA_DIR": str(live.data_dir)}
    assert choose_place(environment, None, None, None).who.token
    for given in (("http://elsewhere:1", None, None), (None, "anna", None), (None, None, "x")):
        assert not choose_place(environment, *given).who.token


def ask(live: LiveBroker, authorization: str) -> int:
    from http.client import HTTPConnection

    connection = HTTPConnection("127.0.0.1", live.http_port, timeout=10)
    connection.request("GET", "/api/users", headers={"Authorization": authorization})
    status = connection.getresponse().status
    connection.close()
    return status


def test_the_token_is_believed_and_no_other(live: LiveBroker) -> None:
    control = find_control({"PENSTOCK_DATA_DIR": str(live.data_dir)})
    assert control is not None
    assert ask(live, f"Bearer {control.token}") == 200
    for wrong in (control.token[:-1], control.token + "x", "", "\xff"):
        assert (
            ask(live, f"Bearer {wrong}".encode("utf-8", "surrogateescape").decode("latin-1")) == 401
        )
    assert ask(live, f"Basic {control.token}") == 401


def test_a_user_and_an_address_do_without_the_file(live: LiveBroker, tmp_path: Path) -> None:
    who = ("--url", live.http_url, "--user", "guest", "--password", "guest")
    assert penstockctl(tmp_path, *who, "list_users", "-s").out == "guest\t[administrator]\n"
    wrong = penstockctl(tmp_path, *who[:-1], "wrong", "list_users")
    assert wrong.code == 69
    assert "Login failed" in wrong.err


def test_a_node_of_another_name_is_not_touched(live: LiveBroker) -> None:
    control = find_control({"PENSTOCK_DATA_DIR": str(live.data_dir)})
    assert control is not None
    host = control.node.partition("@")[2]
    for name in (control.node, f"rabbit@{host}", "rabbit@localhost"):
        assert penstockctl(live.data_dir, "-n", name, "list_users", "-s").code == 0
    for name in ("other@localhost", f"{control.node}.example.org"):
        said = penstockctl(live.data_dir, "-n", name, "add_vhost", "nowhere")
        assert said.code == 69
        assert f"unable to perform an operation on node '{name}'" in said.err
    assert "nowhere" not in penstockctl(live.data_dir, "list_vhosts", "-s").out


def test_nobody_there(tmp_path: Path) -> None:
    (tmp_path / CONTROL_FILE).write_text(written(Control("http://127.0.0.1:9", "p@h", 1, "t")))
    said = penstockctl(tmp_path, "list_queues")
    assert said.code == 69
    assert "unable to perform an operation on node 'p@h'" in said.err
    assert "refused" in said.err
    assert penstockctl(tmp_path, "--url", "ftp://x", "list_queues").code == 64


def test_a_node_that_is_starting_says_how_far_it_is(tmp_path: Path) -> None:
    port = free_port()
    control = Control(f"http://127.0.0.1:{port}", "penstock@x", 1, "of the last start")
    (tmp_path / CONTROL_FILE).write_text(written(control))
    with StartingPage("127.0.0.1", port, StartProgress(SimFileSystem())):
        until = time.monotonic() + 10
        while (said := penstockctl(tmp_path, "list_queues")).code == 69:
            assert time.monotonic() < until
            time.sleep(0.02)
    assert said.code == 64
    assert "requires the 'rabbit' app to be running" in said.err
    assert "the node is starting" in said.err


def test_a_node_that_does_not_answer_in_time(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        (tmp_path / CONTROL_FILE).write_text(written(Control(url, "penstock@x", 1, "t")))
        said = penstockctl(tmp_path, "list_users", "-t", "1")
    assert said.code == 75
    assert said.err == (
        "Error: operation list_users on node penstock@x timed out. Timeout value used: 1000\n"
    )


@pytest.mark.parametrize(
    "remote, local, believed",
    [
        ("127.0.0.1", "127.0.0.1", True),
        ("::1", "::1", True),
        ("10.0.0.5", "10.0.0.5", True),
        ("10.0.0.6", "10.0.0.5", False),
        ("", "", False),
    ],
)
def test_the_token_is_for_this_machine(remote: str, local: str, believed: bool) -> None:
    assert shows_token("Bearer secret", "secret", remote, local) is believed
    assert not shows_token("Bearer ", "", remote, local), "no token opens nothing"


# -- what it does not pretend --------------------------------------------------------------------


@pytest.mark.parametrize(
    "line",
    ["stop_app", "restart_vhost", "force_gc", "exec 1", "erlang_version"],
)
def test_what_does_not_exist_here_fails_and_says_so(line: str, live: LiveBroker) -> None:
    said = penstockctl(live.data_dir, *line.split())
    assert said.code == 70
    assert said.err.startswith("Error:")


@pytest.mark.parametrize(
    "line, instead",
    [
        ("join_cluster rabbit@there", "cluster_etcd_endpoints and cluster_secret_file"),
        ("update_cluster_nodes rabbit@there", "cluster_etcd_endpoints and cluster_secret_file"),
        ("change_cluster_node_type ram", "there are no RAM nodes"),
        ("reset", "empty data directory"),
        ("force_reset", "empty data directory"),
        ("force_boot", "starts without waiting"),
    ],
)
def test_a_refusal_of_a_cluster_verb_advises_no_verb_that_is_refused(
    line: str, instead: str, live: LiveBroker
) -> None:
    said = penstockctl(live.data_dir, *line.split())
    assert said.code == 64
    assert instead in said.err
    assert "stop_app" not in said.err


def test_status_shows_the_memory_limit_as_it_was_set(live: LiveBroker) -> None:
    line = "Memory high watermark setting: "
    try:
        for words, shown in (
            (["0.3"], "0.3 of available memory, "),
            (["absolute", "2GB"], "2.0 gb, "),
        ):
            assert penstockctl(live.data_dir, "set_vm_memory_high_watermark", *words).code == 0
            assert line + shown in penstockctl(live.data_dir, "status").out
    finally:
        penstockctl(live.data_dir, "set_vm_memory_high_watermark", "0.4")


def test_budgets_are_set_as_other_limits_are(live: LiveBroker) -> None:
    budgets = {"max-disk-bytes": 5, "max-memory-bytes": 6, "max-publish-rate": 7}
    assert penstockctl(live.data_dir, "set_vhost_limits", json.dumps(budgets)).code == 0
    listed = penstockctl(live.data_dir, "list_vhost_limits", "-q").out
    assert json.loads(listed) == budgets
    assert penstockctl(live.data_dir, "clear_vhost_limits").code == 0


def test_only_settings_can_be_evaluated(live: LiveBroker) -> None:
    for expression in ("1 + 1.", "rabbit:stop().", "application:set_env(rabbit, a, 1)."):
        said = penstockctl(live.data_dir, "eval", expression)
        assert (said.code, said.out) == (70, "")
        assert "does not run Erlang" in said.err
    assert "{frame_max,131072}" in penstockctl(live.data_dir, "environment").out


def test_where_messages_rest_is_a_column(live: LiveBroker) -> None:
    assert penstockctl(live.data_dir, "list_queues", "name", "backing_queue_status").code == 0


def test_a_name_moves_no_cursor(live: LiveBroker) -> None:
    definitions = live.directory / "nasty.json"
    queue = {"name": "nasty\x1b[2J\nname\té", "vhost": "/", "durable": True}
    queue |= {"auto_delete": False, "arguments": {}}
    definitions.write_text(json.dumps({"queues": [queue]}))
    assert penstockctl(live.data_dir, "import_definitions", str(definitions)).code == 0
    said = penstockctl(live.data_dir, "list_queues", "-s", "name").out
    assert said == "nasty\\x1b[2J\\nname\té\n"
    listed = json.loads(penstockctl(live.data_dir, "list_queues", "--formatter", "json").out)
    assert [row["name"] for row in listed] == [queue["name"]]
    assert penstockctl(live.data_dir, "delete_queue", str(queue["name"])).code == 0


def test_maintenance_sends_clients_away(live: LiveBroker) -> None:

    client = pika.BlockingConnection(pika.URLParameters(live.url))
    try:
        assert penstockctl(live.data_dir, "drain").code == 0
        with pytest.raises(pika.exceptions.ConnectionClosedByBroker):
            client.process_data_events(10)
        assert "marked for maintenance" in penstockctl(live.data_dir, "cluster_status").out
    finally:
        assert penstockctl(live.data_dir, "revive").code == 0
    assert "not under maintenance" in penstockctl(live.data_dir, "cluster_status").out


def test_streams_end_in_time(live: LiveBroker) -> None:
    said = penstockctl(live.data_dir, "log_tail_stream", "--duration", "1", "-q")
    assert said.code == 0
    said = penstockctl(live.data_dir, "consume_event_stream", "-d", "1", "-q")
    assert json.loads(said.out.splitlines()[0])["event"] == "node.stats"


def test_the_log_is_there(live: LiveBroker) -> None:
    said = penstockctl(live.data_dir, "log_tail", "-N", "2", "-q")
    assert said.code == 0
    assert len(said.out.splitlines()) == 2
    assert penstockctl(live.data_dir, "report").code == 0


# -- as a program --------------------------------------------------------------------------------


def program(live: LiveBroker, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", "from penstock.ctl.main import main; main()", *words],
        env=live.environment() | {"PENSTOCK_DATA_DIR": str(live.data_dir)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


def test_a_call_is_quick(live: LiveBroker) -> None:
    """In processor time, the best of three: other work on the machine must not count."""
    spent = []
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        assert program(live, "list_queues", "name").returncode == 0
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        spent.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    assert min(spent) < BUDGET_S


def test_a_reader_who_goes_early_is_no_fault(live: LiveBroker) -> None:
    shell = "from penstock.ctl.main import main; main()"
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", f"{sys.executable} -c '{shell}' help | head -c 1"],
        env=live.environment(),
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.stderr == ""


def test_stop_ends_the_process_and_takes_the_file_away(tmp_path: Path) -> None:
    if os.environ.get("PENSTOCK_TEST_URL"):
        pytest.skip("PENSTOCK_TEST_URL names another broker; penstockctl is for Penstock")
    live = LiveBroker(tmp_path)
    live.start()
    process = live.process
    assert process is not None
    said = penstockctl(live.data_dir, "shutdown")
    assert (said.code, said.err) == (0, "")
    assert process.wait(10) == 0
    live.process = None
    lines = live.output().splitlines()
    assert lines[-1].endswith("<node> stopped")
    assert any("<node> stopping: " in line for line in lines)
    assert not any("recovery:" in line for line in lines), "there was nothing to recover"
    assert not (live.data_dir / CONTROL_FILE).exists()
    assert penstockctl(live.data_dir, "--url", live.http_url, "stop", "--idempotent").code == 0
    assert penstockctl(live.data_dir, "--url", live.http_url, "stop").code == 69


@pytest.mark.parametrize("verb", ["close_connection", "close_all_connections"])
def test_readers_of_ranges_are_closed_by_the_words_for_others(live: LiveBroker, verb: str) -> None:
    with RangeLine(live.amqp_port, login=True) as line:
        name = f"127.0.0.1:{line.port} -> 127.0.0.1:{live.amqp_port}"
        listed = penstockctl(live.data_dir, "list_connections", "name", "user", "protocol")
        assert f"{name}\tguest\tranges" in listed.out
        words = (name, "moving") if verb == "close_connection" else ("moving",)
        assert penstockctl(live.data_dir, verb, *words).code == 0
        assert line.has_ended()
