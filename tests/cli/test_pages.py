"""The commands as a whole: each shows an example, the reference is theirs, shells complete them."""

from __future__ import annotations

import os
import re
import runpy
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from penstock.cli.main import COMMANDS, cli
from penstock.ctl.verbs import VERBS

ROOT = Path(__file__).resolve().parents[2]


def all_commands() -> Iterator[tuple[str, click.Command]]:
    context = click.Context(cli, info_name="penstock")
    for name in COMMANDS:
        command = cli.get_command(context, name)
        assert command is not None
        yield from _with_inner(f"penstock {name}", command, context)


def _with_inner(
    path: str, command: click.Command, parent: click.Context
) -> Iterator[tuple[str, click.Command]]:
    yield path, command
    if isinstance(command, click.Group):
        context = click.Context(command, info_name=path, parent=parent)
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            assert inner is not None
            yield from _with_inner(f"{path} {name}", inner, context)


EVERY = dict(all_commands())


@pytest.mark.parametrize("path", EVERY)
def test_every_command_shows_an_example_that_names_it(path: str) -> None:
    epilog = EVERY[path].epilog or ""
    lines = [line.strip() for line in epilog.replace("\b", "").splitlines()]
    examples = [line for line in lines if path in line]
    assert examples, f"{path} --help shows no example"


@pytest.mark.parametrize("path", EVERY)
def test_options_in_examples_exist(path: str) -> None:
    command = EVERY[path]
    if isinstance(command, click.Group):
        return
    known = {name for one in command.params for name in (*one.opts, *one.secondary_opts)}
    for line in (command.epilog or "").replace("\b", "").splitlines():
        if line.strip().startswith(f"{path} "):
            asked = re.findall(r"(?<!\S)--[a-z][a-z-]*", line.partition(" | ")[0])
            assert set(asked) <= known, line


def test_what_asks_a_broker_answers_in_json_too() -> None:
    """All commands with --url, but for a page of the terminal and the one that writes JSON."""
    without = [
        path
        for path, command in EVERY.items()
        if any("--url" in one.opts for one in command.params)
        and not any("-o" in one.opts for one in command.params)
    ]
    assert [path for path in without if not path.startswith("penstock pipeline")] == [
        "penstock top",
        "penstock definitions export",
    ]


def test_the_reference_is_what_the_programs_say() -> None:
    tool = runpy.run_path(str(ROOT / "tools" / "gen_cli_doc.py"))
    assert tool["main"](["--check"]) == 0, "run python tools/gen_cli_doc.py"


# -- completion --------------------------------------------------------------------------------


def script(shell: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "penstock", "completion", shell],
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    return done.stdout


def completed(line: str, directory: Path) -> list[str]:
    """What bash offers after that line and a press of the tab key."""
    program = directory / "penstock"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m penstock "$@"\n')
    program.chmod(0o755)
    words = line.split(" ")
    asking = (
        f"{script('bash')}\n"
        f"COMP_WORDS=({line}); COMP_CWORD={len(words) - 1}\n"
        f"[[ $(complete -p penstock) =~ -F\\ ([^ ]+) ]] && ${{BASH_REMATCH[1]}} penstock\n"
        'printf "%s\\n" "${COMPREPLY[@]}"\n'
    )
    done = subprocess.run(
        ["bash", "-c", asking],
        env={
            **os.environ,
            "PYTHONPATH": str(ROOT / "src"),
            "PATH": f"{directory}:{os.environ['PATH']}",
        },
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    return done.stdout.split()


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash here")
def test_bash_completes_commands_and_options(tmp_path: Path) -> None:
    assert completed("penstock queu", tmp_path) == ["queues", "queue"]
    assert completed("penstock queue pee", tmp_path) == ["peek"]
    assert completed("penstock queues --vh", tmp_path) == ["--vhost"]


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash here")
def test_bash_knows_the_verbs_of_penstockctl() -> None:
    asked = subprocess.run(
        ["bash", "-c", f"{script('bash')}\ncomplete -p penstockctl"],
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    assert set(VERBS) <= set(shlex.split(asked.stdout)[2].split())


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_get_a_script_of_their_own(shell: str) -> None:
    text = script(shell)
    assert "_PENSTOCK_COMPLETE" in text
    assert "list_queues" in text
    if shutil.which(shell):
        subprocess.run([shell, "-n"], input=text, text=True, check=True, timeout=30)
