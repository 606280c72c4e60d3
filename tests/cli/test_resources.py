"""Limits at run time: what the commands ask for, and what they refuse, in rabbitmqctl's words."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner, Result

from penstock.cli.main import cli
from tests.cli.conftest import Answers

MEMORY = "set_vm_memory_high_watermark"
DISK = "set_disk_free_limit"
FRACTION = "Bad argument: The threshold should be a fraction between 0.0 and 1.0"
USAGE = 2


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli, list(arguments))


@pytest.mark.parametrize(
    "words, path, asked, to",
    [
        ([MEMORY, "0"], "vm-memory-high-watermark", {"fraction": "0"}, "0"),
        ([MEMORY, "0.55"], "vm-memory-high-watermark", {"fraction": "0.55"}, "0.55"),
        ([MEMORY, "absolute", "0"], "vm-memory-high-watermark", {"absolute": "0"}, "0 bytes"),
        ([MEMORY, "absolute", "2GB"], "vm-memory-high-watermark", {"absolute": "2GB"}, "2GB bytes"),
        ([DISK, "1000000"], "disk-free-limit", {"absolute": "1000000"}, "1000000 bytes"),
        ([DISK, "2GB"], "disk-free-limit", {"absolute": "2GB"}, "2GB bytes"),
        (
            [DISK, "mem_relative", "1.5"],
            "disk-free-limit",
            {"mem_relative": "1.5"},
            "1.5 times the total RAM",
        ),
    ],
)
def test_what_is_asked_for(
    api: str, words: list[str], path: str, asked: dict[str, str], to: str
) -> None:
    Answers.body = b'{"node":"penstock@here","limit_bytes":7}'
    result = run(*words, "--url", api)
    assert result.exit_code == 0, result.output
    assert Answers.sent == [(f"/api/penstock/{path}", asked)]
    what = "memory threshold" if words[0] == MEMORY else "disk free limit"
    assert result.output == f"Setting {what} on penstock@here to {to} ...\n"
    said = json.loads(run(*words, "--url", api, "-o", "json").output)
    assert said == {"node": "penstock@here", "limit_bytes": 7}


# Each of them is the word of rabbitmqctl 3.10.8, asked for the same.
@pytest.mark.parametrize(
    "words, refusal",
    [
        ([MEMORY], "not enough arguments."),
        ([MEMORY, "2"], FRACTION),
        ([MEMORY, "--", "-0.1"], FRACTION),
        ([MEMORY, "abc"], "Bad argument."),
        ([MEMORY, "0.3x"], "Bad argument."),
        ([MEMORY, "0.3", "0.4"], "too many arguments."),
        ([MEMORY, "absolute"], "not enough arguments."),
        ([MEMORY, "absolute", "10Q"], "Bad argument: Invalid units."),
        ([MEMORY, "absolute", "1.5GB"], "Bad argument: The threshold should be an integer."),
        ([MEMORY, "absolute", "abc"], "Bad argument."),
        ([MEMORY, "absolute", "1GB", "2GB"], "too many arguments."),
        ([DISK], "not enough arguments."),
        ([DISK, "abc"], "Bad argument."),
        ([DISK, "10Q"], "Bad argument."),
        ([DISK, "1.5GB"], "Bad argument."),
        ([DISK, "10", "20"], "too many arguments."),
        ([DISK, "mem_relative"], "not enough arguments."),
        ([DISK, "mem_relative", "abc"], "Bad argument."),
        ([DISK, "mem_relative", "--", "-1"], "Bad argument."),
        ([DISK, "mem_relative", "1", "2"], "too many arguments."),
    ],
)
def test_what_is_refused(api: str, words: list[str], refusal: str) -> None:
    result = run(words[0], "--url", api, *words[1:])
    assert result.exit_code == USAGE
    assert result.stderr.endswith(f"Error: {refusal}\n")
    assert Answers.sent == []


def test_who_does_not_say_that_it_did(api: str) -> None:
    result = run(MEMORY, "0.4", "--url", api)
    assert result.exit_code == 1
    assert "is that a Penstock?" in result.stderr
