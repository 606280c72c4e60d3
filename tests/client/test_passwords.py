"""Passwords that commands are given: from files and standard input, and warned of as arguments."""

from __future__ import annotations

import io
import os
from pathlib import Path

import pytest
from click.testing import CliRunner

from penstock.cli.main import cli
from penstock.client.endpoint import Endpoint
from penstock.client.local_node import choose_place
from penstock.client.passwords import warning_of, warning_of_address
from penstock.core.errors import SettingInvalid
from penstock.ctl.main import run as penstockctl
from pyspark_penstock.endpoints import parse_url

NOWHERE = "http://127.0.0.1:1"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "password"
    path.write_text("a canary\n")
    return path


def test_a_password_is_read_from_a_file_a_command_and_standard_input(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("a canary\nmore\n"))
    for text in (f"file:{file}", f"command:cat {file}", "a canary", "plain:a canary", "-"):
        assert choose_place({}, NOWHERE, "ann", text).who.password == "a canary"
    with pytest.raises(SettingInvalid, match="only the broker's settings"):
        choose_place({}, NOWHERE, "ann", "encrypted:x")


def test_an_amqp_url_without_a_password_gets_that_of_the_environment(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for parse in (Endpoint.parse, parse_url):
        monkeypatch.delenv("PENSTOCK_PASSWORD", raising=False)
        assert parse("amqp://ann@h/").password == "guest"
        for text in (f"file:{file}", "a canary"):
            monkeypatch.setenv("PENSTOCK_PASSWORD", text)
            assert parse("amqp://ann@h/").password == "a canary"
            assert parse("amqp://ann:own@h/").password == "own"
            assert parse("amqp://h/").password == "guest"
        monkeypatch.setenv("PENSTOCK_PASSWORD", f"file:{file}.none")
        with pytest.raises(ValueError, match="No such file"):
            parse("amqp://ann@h/")


def test_sparks_option_may_name_a_file(file: Path) -> None:
    assert parse_url("amqp://ann:x@h/", {"password": f"file:{file}"}).password == "a canary"
    assert parse_url("amqp://ann:file%3Ax@h/").password == "file:x", "a URL has the password itself"
    assert parse_url("amqp://h/", {"password": "plain:file:x"}).password == "file:x"


@pytest.mark.parametrize(
    "text, is_said",
    [
        ("canary", True),
        ("plain:canary", True),
        ("file:/etc/x", False),
        ("command:x", False),
        ("-", False),
        ("", False),
    ],
)
def test_what_others_can_read_is_said_without_it(text: str, is_said: bool) -> None:
    found = warning_of(text, "--password")
    assert bool(found) is is_said
    assert "canary" not in found


@pytest.mark.parametrize(
    "text, is_said",
    [
        ("amqp://ann:canary@h/", True),
        ("http://ann@h/", False),
        ("amqp://h/", False),
        ("/tmp/canary.json", False),
    ],
)
def test_an_address_is_said_to_be_read_if_it_has_a_password(text: str, is_said: bool) -> None:
    found = warning_of_address(text, "--url", "PENSTOCK_URL")
    assert ("PENSTOCK_URL can hold" in found) is is_said
    assert "canary" not in found


def test_both_commands_warn_of_an_argument_and_of_nothing_else(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = ["--url", NOWHERE, "--user", "ann"]
    environment = {"PENSTOCK_PASSWORD": "canary", "PENSTOCK_DATA_DIR": str(file)}
    for more, is_said in (
        (["--password", "canary"], True),
        (["--password", f"file:{file}"], False),
        ([], False),
    ):
        ours = CliRunner().invoke(cli, ["queues", *place, *more], env=environment).stderr
        out, err = io.StringIO(), io.StringIO()
        penstockctl(["list_users", *place, *more], out, err, {**os.environ, **environment})
        theirs = capsys.readouterr().err
        for said in (ours, theirs):
            assert ("can read this password" in said) is is_said
            assert "canary" not in said.replace("a canary", "")
