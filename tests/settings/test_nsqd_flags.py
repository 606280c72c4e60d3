"""nsqd's and nsqlookupd's flags and files: every one of release 1.3.0 is judged.

``nsqd-help.txt`` and ``nsqlookupd-help.txt`` are what the real ones print for ``--help``.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from penstock.cli.nsq.programs import PROGRAMS, Program, settings_of
from penstock.core.errors import SettingInvalid
from penstock.settings.nsqd import NSQD, milliseconds, parse, read_file, translate
from penstock.settings.settings import DECLARED, Settings

NOT_IN_THE_TABLES = {"version", "config"}
OTHER_DEFAULTS = {
    "broadcast-address": "empty: the name of the machine",
    "node-id": "made of the name of the machine, as there",
    "tls-min-version": "no version before 1.2 is spoken",
}


class Told(NamedTuple):
    """A flag of a help text."""

    kind: str
    default: str


def flags_of(program: Program) -> dict[str, Told]:
    text = Path(__file__).with_name(f"{program.name}-help.txt").read_text()
    found = re.findall(r"^  -([a-z0-9-]+)(?: (\w+))?\n    \t(.*)$", text, re.MULTILINE)
    assert len(found) == text.count("\n  -")
    return {name: Told(kind, default_in(line)) for name, kind, line in found}


def default_in(line: str) -> str:
    found = re.search(r"""\(default (?:"([^"]*)"|([^ ,)"]+)[^)"]*)\)$""", line)
    return "" if found is None else found[1] or found[2] or ""


def settings(*words: str, program: Program = PROGRAMS[0], **environment: str) -> Settings:
    return settings_of(program, parse(program.table, words), environment)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda one: one.name)
def test_every_flag_is_judged(program: Program) -> None:
    told = flags_of(program)
    assert {flag.name for flag in program.table} | NOT_IN_THE_TABLES == set(told)
    for flag in program.table:
        assert flag.sets or flag.note, flag.name
        assert set(flag.sets) <= set(DECLARED), flag.name


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda one: one.name)
def test_without_flags_the_values_are_those_of_the_help(program: Program) -> None:
    """A flag given with its own default changes nothing, nor is its default another here."""
    told = flags_of(program)
    plain = settings(program=program)
    for flag in program.table:
        default = told[flag.name].default
        if not default or flag.name in OTHER_DEFAULTS:
            continue
        given = settings(f"--{flag.name}={default}", program=program)
        for key in flag.sets:
            assert given.value_of(key) == plain.value_of(key), flag.name


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda one: one.name)
def test_a_switch_is_one_there_too(program: Program) -> None:
    """Go prints no type behind a boolean flag."""
    told = flags_of(program)
    assert {flag.name for flag in program.table if flag.is_switch} == {
        name for name, one in told.items() if one.kind == ""
    } - {"version"}


@pytest.mark.parametrize(
    "words, key, value",
    [
        (["-max-msg-size=2000"], "nsq_max_msg_size_bytes", 2000),
        (["--max-msg-size", "2000"], "nsq_max_msg_size_bytes", 2000),
        (["-max-msg-size", "0x10"], "nsq_max_msg_size_bytes", 16),
        (["--max-msg-size=1", "--max-msg-size=2"], "nsq_max_msg_size_bytes", 2),
        (["--snappy=false"], "nsq_snappy", False),
        (["--snappy=0"], "nsq_snappy", False),
        (["--statsd-exclude-ephemeral"], "nsq_statsd_exclude_ephemeral", True),
        (["--deflate", "false", "--snappy=F"], "nsq_snappy", True),  # Go stops at "false"
        (["--msg-timeout=1m30s"], "nsq_msg_timeout_ms", 90_000),
        (["--statsd-interval=1500ms"], "nsq_statsd_interval_s", 2),
        (["--e2e-processing-latency-window-time=2h"],
         "nsq_e2e_processing_latency_window_time_s", 7200),
        (["--e2e-processing-latency-percentile=1.0,0.99",
          "--e2e-processing-latency-percentile=0.5"],
         "nsq_e2e_processing_latency_percentiles", ("1.0", "0.99", "0.5")),
        (["--lookupd-tcp-address=a:4160", "-lookupd-tcp-address", "b:4160"],
         "nsqlookupd_tcp_addresses", ("a:4160", "b:4160")),
        (["--auth-http-address=http://a:4181/x"], "nsq_auth_http_addresses", ("http://a:4181/x",)),
        (["--tcp-address=127.0.0.1:5150"], "nsq_port", 5150),
        (["--tcp-address=127.0.0.1:5150"], "nsq_tcp_bind", "127.0.0.1"),
        (["--http-address=:5151"], "nsq_http_bind", "0.0.0.0"),
        (["--http-address=[::1]:5151"], "nsq_http_bind", "::1"),
        (["--http-address="], "nsq_http_port", 0),
        (["--tcp-address=/run/nsqd.sock"], "nsq_unix_socket", "/run/nsqd.sock"),
        (["--tcp-address=/run/nsqd.sock"], "nsq_port", 0),
        (["--http-address=/run/nsqd-http.sock"], "nsq_http_unix_socket", "/run/nsqd-http.sock"),
        (["--https-address=127.0.0.1:5152"], "nsq_https_port", 5152),
        (["--broadcast-tcp-port=7"], "nsq_broadcast_port_tcp", 7),
        (["--broadcast-http-port=8"], "nsq_broadcast_port_http", 8),
        (["--log-level=WARN"], "log_level", "warning"),
        (["--node-id=5"], "nsq_node_id", 5),
        (["--tls-required"], "nsq_tls_required", "yes"),
        (["--tls-required=tcp-https"], "nsq_tls_required", "tcp-https"),
        (["--tls-client-auth-policy=require-verify", "--tls-required=false"],
         "nsq_tls_required", "yes"),
        (["--tls-client-auth-policy=require-verify"], "ssl_fail_if_no_peer_cert", True),
        (["--tls-min-version=tls1.3"], "ssl_min_version", "1.3"),
        (["--tls-min-version=tls1.0"], "ssl_min_version", "1.2"),
        ([], "amqp_listener", False),
        ([], "nsq_user", "nsq"),
        (["--", "--max-msg-size=5"], "nsq_max_msg_size_bytes", 1_048_576),
        (["word", "--max-msg-size=5"], "nsq_max_msg_size_bytes", 1_048_576),
    ],
)  # fmt: skip
def test_words_are_read_as_go_reads_them(words: list[str], key: str, value: object) -> None:
    assert settings(*words).value_of(key) == value


@pytest.mark.parametrize(
    "words, text",
    [
        (["--max-msg-sizes=1"], "there is no -max-msg-sizes; did you mean -max-msg-size?"),
        (["--max-msg-size"], "-max-msg-size needs a value"),
        (["--max-msg-size=big"], "max-msg-size = 'big'; allowed: a whole number"),
        (["--msg-timeout=60"], "allowed: a duration such as 250ms or 1m30s"),
        (["--snappy=maybe"], "allowed: true or false"),
        (["--log-level=loud"], "allowed: debug, info, warn, error or fatal"),
        (["--tcp-address=127.0.0.1:0"], "a port from 1 on"),
        (["--https-address=/run/x"], "https-address = '/run/x'; allowed: host:port"),
        (["--tls-client-auth-policy=require"], "certificate is not checked, which proves nothing"),
        (["--tls-client-auth-policy=requier-verify"], "allowed: require-verify"),
        (["--tls-min-version=ssl3.0"], "allowed: tls1.0, tls1.1, tls1.2 or tls1.3"),
        (["--mem-queue-size=all"], "mem-queue-size = 'all'"),
        (["--max-deflate-level=10"], "a whole number from 1 to 9"),
        (["--node-id=1024"], "a whole number from -1 to 1023"),
        (["--e2e-processing-latency-percentile=1.5"], "numbers above 0 and up to 1"),
    ],
)
def test_what_is_refused(words: list[str], text: str) -> None:
    with pytest.raises(SettingInvalid, match=re.escape(text)):
        settings(*words)


def test_what_has_no_effect_says_why() -> None:
    found = settings("--mem-queue-size=5", "--verbose", "--sync-every=1").warnings
    assert [one.partition(" = ")[0] for one in found] == ["verbose", "mem-queue-size", "sync-every"]
    assert "vm_memory_high_watermark" in found[1]


FILE = """
tcp_address = "127.0.0.1:4250"
id = 7
msg_timeout = "5s"
max_req_timeout = 5000
snappy = false
nsqlookupd_tcp_addresses = ["a:4160", "b:4160"]
auth_http_addresses = "c:1,d:2"
e2e_processing_latency_percentiles = [1.0, 0.95]
tls_required = true
log_level = "debug"
colour = "red"
"""


def test_a_file(tmp_path: Path) -> None:
    file = tmp_path / "nsqd.cfg"
    file.write_text(FILE)
    found = settings(f"-config={file}", "--msg-timeout=9s")
    expected: dict[str, Any] = {
        "nsq_port": 4250,
        "nsq_node_id": 7,
        "nsq_msg_timeout_ms": 9000,
        "nsq_max_req_timeout_ms": 5000,
        "nsq_snappy": False,
        "nsqlookupd_tcp_addresses": ("a:4160", "b:4160"),
        "nsq_auth_http_addresses": ("c:1", "d:2"),
        "nsq_e2e_processing_latency_percentiles": ("1.0", "0.95"),
        "nsq_tls_required": "yes",
        "log_level": "debug",
    }
    assert {key: found.value_of(key) for key in expected} == expected
    assert found.warnings == (f"file {file}: colour is no setting of nsqd; ignored, as there",)


@pytest.mark.parametrize("text", ["tcp_address = ", "= 1"])
def test_a_file_that_is_no_toml(text: str, tmp_path: Path) -> None:
    with pytest.raises(SettingInvalid, match="not TOML"):
        read_file(NSQD, text, "file x")
    with pytest.raises(SettingInvalid, match="cannot read the configuration file"):
        settings(f"--config={tmp_path / 'nowhere'}")


def test_the_environment_is_between_the_defaults_and_the_flags(tmp_path: Path) -> None:
    environment = {"PENSTOCK_AMQP_LISTENER": "true", "PENSTOCK_NSQ_PORT": "1"}
    found = settings("--tcp-address=:2", f"--data-path={tmp_path}", **environment)
    assert (found.amqp_listener, found.nsq_port) == (True, 2)
    assert found.data_dir == str(tmp_path)
    assert settings().data_dir == str(Path.cwd())


@pytest.mark.parametrize(
    "text, expected",
    [("0", 0.0), ("1.5s", 1500.0), ("1h2m3s4ms", 3_723_004.0), (".5s", 500.0), ("1500µs", 1.5)],
)
def test_durations(text: str, expected: float) -> None:
    assert milliseconds(text) == pytest.approx(expected)


@pytest.mark.parametrize("text", ["", "5", "5x", "s", "1s5", "-1s", "1 s"])
def test_no_durations(text: str) -> None:
    with pytest.raises(ValueError, match="a duration"):
        milliseconds(text)


def test_the_stronger_source_takes_the_place_of_the_whole_list() -> None:
    texts, weaker = {"lookupd-tcp-address": ["a:1"]}, {"lookupd-tcp-address": ["b:1", "c:1"]}
    assert translate(NSQD, texts, weaker).settings == {"nsqlookupd_tcp_addresses": ("a:1",)}
