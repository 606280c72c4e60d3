"""What documents say of commands, settings and defaults is so in the program (issue 20)."""

from __future__ import annotations

import re
import shlex
import tomllib
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from penstock.broker.rules import alarms, flow, log_ins
from penstock.broker.topology import changes
from penstock.cli.main import cli
from penstock.ctl.options import COMMON
from penstock.ctl.verbs import VERBS
from penstock.management.facts import on_loop
from penstock.management.http import bodies, ui_sessions
from penstock.management.http import http_connections as http
from penstock.protocols.nsq import layers
from penstock.settings.settings import DECLARED, OTHER_VARIABLES, load_settings
from penstock.storage.engine import ram

REPOSITORY = Path(__file__).resolve().parents[2]
DOCUMENTS = [
    REPOSITORY / "README.md",
    REPOSITORY / "SECURITY.md",
    *sorted((REPOSITORY / "docs").rglob("*.md")),
]
TEXTS = {str(path.relative_to(REPOSITORY)): path.read_text(encoding="utf-8") for path in DOCUMENTS}
PLACEHOLDER = re.compile(r"[A-Z_]{2,}|…|\.\.\.|[<\[{].*|.*[|>\]}]")
COMMAND = re.compile(
    r"(?:^|[;&|(] ?|\$ |sudo |sudo -u \S+ |exec \S+ )(?:[A-Z_]+=\S+ )*(?:\S+/)?"
    r"(penstock(?:ctl)? .*)"
)
UNITS = {"": 1, "ms": 1, "s": 1, "%": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}


def command_lines(text: str) -> Iterator[str]:
    """In blocks of code, with their continuations, and between backticks."""
    blocks = re.findall(r"^```[a-z]*\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    blocks += ["\n".join(re.findall(r"^    (.*)$", text, re.MULTILINE))]
    for block in blocks:
        for line in block.replace("\\\n", " ").splitlines():
            found = COMMAND.search(line)
            if found:
                yield found[1]
    prose = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    for code in re.findall(r"`([^`]+)`", prose):
        if re.match(r"penstock(ctl)? ", code):
            yield " ".join(code.split())


def words_of(line: str) -> list[str]:
    """Up to what is for the shell, and to a comment."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars="|&;<>")
    lexer.whitespace_split = True
    words = []
    try:
        for word in lexer:
            if word and set(word) <= set("|&;<>"):
                break
            words.append(word)
    except ValueError:  # an apostrophe: prose, not a command
        return []
    return words


def options_in(words: list[str]) -> list[str]:
    return [word.partition("=")[0] for word in words if re.match(r"--[a-z]", word)]


def fault_of_penstock(words: list[str]) -> str:
    command: click.Command = cli
    context = click.Context(cli, info_name="penstock")
    known = {name for one in cli.params for name in (*one.opts, *one.secondary_opts)}
    for place, word in enumerate(words):
        if word.startswith("-"):
            continue
        if not isinstance(command, click.Group) or PLACEHOLDER.fullmatch(word):
            break
        inner = command.get_command(context, word)
        if inner is None:
            return f"no command {' '.join(words[: place + 1])}"
        command, context = inner, click.Context(inner, info_name=word, parent=context)
        known |= {name for one in command.params for name in (*one.opts, *one.secondary_opts)}
    unknown = [name for name in options_in(words) if name not in known | {"--help", "--version"}]
    return f"no option {unknown}" if unknown and not isinstance(command, click.Group) else ""


def fault_of_penstockctl(words: list[str]) -> str:
    verb = next((word for word in words if not word.startswith("-")), "help")
    if PLACEHOLDER.fullmatch(verb):
        return ""
    if verb not in VERBS:
        return f"no verb {verb}"
    known = {*VERBS[verb].switches, *COMMON}
    unknown = [name for name in options_in(words) if name[2:] not in known]
    return f"no option {unknown}" if unknown else ""


@pytest.mark.parametrize("name", TEXTS)
def test_commands_and_their_options_exist(name: str) -> None:
    faults = []
    for line in command_lines(TEXTS[name]):
        program, *words = words_of(line) or [""]
        fault = {"penstock": fault_of_penstock, "penstockctl": fault_of_penstockctl}.get(program)
        if fault is not None and (found := fault(words)):
            faults.append(f"{line}: {found}")
    assert faults == []


def test_enough_commands_are_found() -> None:
    """Else the search above is wrong."""
    assert sum(len(list(command_lines(text))) for text in TEXTS.values()) > 150


@pytest.mark.parametrize("name", TEXTS)
def test_settings_in_examples_exist_and_take_the_value(name: str) -> None:
    text = TEXTS[name]
    examples = re.findall(r"^```toml\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    examples += [
        code
        for code in re.findall(r"`([a-z_]+ = [^`]+)`", text)
        if code.partition(" ")[0] in DECLARED
    ]
    for example in examples:
        for key, value in tomllib.loads(example).items():
            setting = DECLARED[key]
            taken = setting.from_toml(value)
            assert taken is not None, example
            assert setting.within_bounds(taken), example


@pytest.mark.parametrize("name", TEXTS)
def test_variables_exist(name: str) -> None:
    known = {one.environment_name for one in DECLARED.values()} | OTHER_VARIABLES.keys()
    told = set(re.findall(r"\bPENSTOCK_[A-Z0-9_]*[A-Z0-9]\b", TEXTS[name]))
    assert {one for one in told - known if not one.startswith("PENSTOCK_TEST_")} == set()


KIB, MIB = 1 << 10, 1 << 20
API = "docs/reference/management-api.md"
LIMITS = [
    ("docs/guide/alarms.md", r"again below (\d+) % of", 100 - 100 // alarms.SPARE),
    ("docs/guide/alarms.md", r"Above (\d+) % of the limit it makes queues", alarms.COMFORT),
    ("docs/guide/alarms.md", r"by (\d+) MiB at least, it always does", alarms.FAR_BYTES // MIB),
    ("docs/guide/alarms.md", r"those beyond (\d+) of a connection", changes.FREE_CONSUMERS),
    ("docs/guide/alarms.md", r"and channels beyond (\d+) of a", changes.FREE_CHANNELS),
    ("docs/guide/flow.md", r"reads up to (\d+) MiB", flow.HELD_OWN_MAX_BYTES // MIB),
    ("docs/guide/flow.md", r"\((\d+) MiB in total\)", flow.HELD_MAX_BYTES // MIB),
    ("docs/guide/listeners.md", r"unacknowledged, (\d+) bytes for", ram.MESSAGE_OVERHEAD_BYTES),
    ("docs/guide/monitoring.md", r"slices of at most (\d+) objects", on_loop.SLICE),
    ("docs/nsq.md", r"with deflate (\d+) KiB are read", layers.DEFLATE_READ_BYTES // KIB),
    ("docs/nsq.md", r"snappy a chunk is (\d+) KiB at most", layers.PLAIN_BYTES // KIB),
    (API, r"At most (\d+) connections", http.CONNECTIONS_MAX),
    (API, r"request header is closed after (\d+) s", http.HEADER_TIMEOUT_S),
    (API, r"slowly than\s(\d+) KiB/s", http.BODY_BYTES_PER_S // KIB),
    (API, r"KiB/s after (\d+) s", http.BODY_TIMEOUT_S),
    (API, r"requests after (\d+) s", http.KEEPALIVE_TIMEOUT_S),
    (API, r"of its answer for (\d+) s", http.WRITE_TIMEOUT_S),
    (API, r"A user has at most (\d+) sessions", ui_sessions.SESSIONS_OF_USER_MAX),
    (API, r"node ([\d,]+); for one more", ui_sessions.SESSIONS_MAX),
    (API, r"A body has at most (\d+) MiB", bodies.ASKED_MAX_BYTES // MIB),
    (API, r"Definitions have up to (\d+) MiB", bodies.BODY_MAX_BYTES // MIB),
    ("SECURITY.md", r"after (an hour) without", ui_sessions.IDLE_MAX_S),
    ("SECURITY.md", r"after\s+(eight hours)", ui_sessions.AGE_MAX_S),
    ("SECURITY.md", r"More than (five) wrong", log_ins.FREE_MAX),
    ("SECURITY.md", r"answered after (three) seconds", log_ins.DELAY_MS // 1000),
    ("docs/guide/ui.md", r"after (an hour) without", ui_sessions.IDLE_MAX_S),
    ("docs/guide/ui.md", r"after (eight hours)", ui_sessions.AGE_MAX_S),
]
IN_WORDS = {"three": 3, "five": 5, "an hour": 3600, "eight hours": 8 * 3600}


@pytest.mark.parametrize("name, words, limit", LIMITS, ids=[words for _, words, _ in LIMITS])
def test_limits_are_those_of_the_program(name: str, words: str, limit: float) -> None:
    (told,) = re.findall(words, TEXTS[name])
    assert (IN_WORDS[told] if told in IN_WORDS else int(told.replace(",", ""))) == limit


def defaults_in(text: str) -> list[tuple[str, float]]:
    """``name`` (3 s), ``name`` of 3 s, ``name``, 128 MiB, and 3 s (``name``)."""
    number = r"([\d][\d,]*(?:\.\d+)?) ?([a-zA-Z%]*)"
    pairs = re.findall(
        rf"`([a-z0-9_]+)`(?: \(|,? by default |, the default (?:is )?){number}", text
    )
    with_unit = r"`([a-z0-9_]+)`, ([\d][\d,]*) (KiB|MiB|GiB|ms|s)\b"
    pairs += re.findall(with_unit, text)
    pairs += [(key, *rest) for *rest, key in re.findall(rf"{number} \(`([a-z0-9_]+)`\)", text)]
    return [
        (key, float(digits.replace(",", "")) * UNITS.get(unit, 1))
        for key, digits, unit in pairs
        if key in DECLARED
    ]


@pytest.mark.parametrize("name", TEXTS)
def test_defaults_are_those_of_the_program(name: str) -> None:
    for key, told in defaults_in(TEXTS[name]):
        assert DECLARED[key].default == pytest.approx(told), key
    for key, word in re.findall(r"`([a-z0-9_]+)`, by default `([^`]+)`", TEXTS[name]):
        if key in DECLARED:
            assert str(DECLARED[key].default) == word.strip('"'), key


def test_what_is_looked_for_is_found() -> None:
    """Each search of this file in one text."""
    text = "`amqp_port` (5673), 3 MiB (`http_port`), `nsq_port`, by default 7."
    assert defaults_in(text) == [("amqp_port", 5673), ("nsq_port", 7), ("http_port", 3 << 20)]
    assert fault_of_penstock(["serve", "--no-such"]) == "no option ['--no-such']"
    assert fault_of_penstock(["queue", "dance"]) == "no command queue dance"
    assert fault_of_penstockctl(["dance"]) == "no verb dance"
    assert fault_of_penstockctl(["list_queues", "--dance"]) == "no option ['--dance']"
    assert load_settings(None, {}, {}).amqp_port == DECLARED["amqp_port"].default
