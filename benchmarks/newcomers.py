"""Three newcomers, from the first line of the README to a table that is read back.

    python -m benchmarks.newcomers [NAME …]     rabbitmq, kafka, nsq; needs curl, pika, pynsq, Spark

Each starts a broker and does what the pages say: a block of several lines is pasted, one of a
single line is typed.  The blocks are run as they stand, but for the ports, since a broker may be
running here.  Ends with 1 if the table that is read back is another one than the page promises, or
if all takes more than five minutes.
"""

from __future__ import annotations

import re
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path
from typing import Final, NamedTuple

sys.path[:0] = [str(Path(__file__).resolve().parents[1] / place) for place in ("", "src")]

from benchmarks.harness import machine  # noqa: E402
from penstock import __version__  # noqa: E402
from penstock.node.node import is_compiled  # noqa: E402
from tests.helpers.live_broker import REPOSITORY  # noqa: E402
from tests.helpers.nsq_broker import NsqBroker  # noqa: E402
from tests.helpers.pages import blocks_of, interrupted, pasted  # noqa: E402

WORDS_A_MINUTE: Final = 230
CHARACTERS_A_SECOND: Final = 5
PASTE_S: Final = 3
LIMIT_S: Final = 300
README_UNTIL: Final = "## Three figures"
COMMANDS: Final = ("make run", ". .venv/bin/activate", "make spark")
"""What all type first; only the start of the broker is measured, not downloads and compilation."""


class Walk(NamedTuple):
    """``since`` and ``until``: what is read of ``page``.  ``watched``: a program that goes on until
    Ctrl-C, and what it prints.  ``ends``: what the last block prints."""

    name: str
    page: str
    since: str
    until: str
    label: str
    ends: str
    commands: tuple[str, ...] = ()
    watched: tuple[str, tuple[str, ...]] = ("", ())
    blocks: tuple[str, ...] = ()
    """Those that are needed, in their order."""


WALKS: Final = (
    Walk(
        "rabbitmq",
        "docs/quickstart.md",
        "# Quick start",
        "Next: ",
        "quick-start",
        r"\A100 orders\n\[\{'seq_id': 0, 'body': b'\{\"order\": 0\}'\}",
        commands=("pip install pika",),
        blocks=("publish", "look", "archive", "read"),
    ),
    Walk(
        "kafka",
        "docs/guide/coming-from.md",
        "## Kafka, read by Spark",
        "`penstock pipeline archive --stream clicks",
        "coming-from",
        r"(?s)\| +0\|[^\n]*\| *home\|.*\| +1\|[^\n]*\| *cart\|",
        blocks=("publish", "spark"),
    ),
    Walk(
        "nsq",
        "docs/nsq.md",
        "# NSQ on Penstock",
        "The web UI shows",
        "quick-start",
        r"\[b'third'\]\n\Z",
        commands=("pip install pynsq",),
        watched=("consume", ("first attempt 1\n", "second attempt 1\n")),
        blocks=("publish", "consume", "archive"),
    ),
)


class Walked(NamedTuple):
    """What a walk took."""

    words: int
    characters: int
    pastes: int
    machine_s: float
    wrong: str

    @property
    def reading_s(self) -> float:
        return self.words / WORDS_A_MINUTE * 60

    @property
    def hands_s(self) -> float:
        return self.characters / CHARACTERS_A_SECOND + self.pastes * PASTE_S

    @property
    def all_s(self) -> float:
        return self.reading_s + self.hands_s + self.machine_s


def part(page: str, since: str, until: str) -> str:
    """From the line that begins with ``since`` up to the one that begins with ``until``."""
    text = (REPOSITORY / page).read_text(encoding="utf-8")
    begin = re.search(f"^{re.escape(since)}", text, re.MULTILINE)
    end = re.search(f"^{re.escape(until)}", text, re.MULTILINE)
    if begin is None or end is None:
        raise SystemExit(f"{page} has no line that begins with {since!r} or {until!r}")
    return text[begin.start() : end.start()]


def with_ports(block: str, broker: NsqBroker) -> str:
    """Of this broker, for the programs that have an address in them."""
    for told, port in ((4150, broker.tcp_port), (4151, broker.api_port)):
        block = block.replace(f"127.0.0.1:{told}", f"127.0.0.1:{port}")
    return block.replace('"127.0.0.1")', f'"127.0.0.1", {broker.amqp_port})')


def go(walk: Walk, directory: Path) -> Walked:
    read = part("README.md", "# ", README_UNTIL) + part(walk.page, walk.since, walk.until)
    blocks = blocks_of(walk.page, walk.label)
    typed = [*COMMANDS, *walk.commands]
    missing = [command for command in typed if command not in read]
    if missing:
        raise SystemExit(f"{walk.page} and the README do not say: {missing}")
    typed += [blocks[name].strip() for name in walk.blocks if blocks[name].count("\n") == 1]
    said = ""
    begun = time.monotonic()
    with NsqBroker() as broker:
        place = {"PENSTOCK_HTTP_URL": broker.http_url, "PENSTOCK_URL": broker.url}
        for name in walk.blocks:
            block = with_ports(blocks[name], broker)
            if name == walk.watched[0]:
                heard = interrupted(block, directory, len(walk.watched[1]))
                assert heard == [*walk.watched[1]], heard
            else:
                said = pasted(block, directory, place)
        took = time.monotonic() - begun
    return Walked(
        words=len(read.split()),
        characters=sum(len(command) + 1 for command in typed),
        pastes=len(walk.blocks) - sum(blocks[name].count("\n") == 1 for name in walk.blocks),
        machine_s=took,
        wrong="" if re.search(walk.ends, said) else f"the last block printed:\n{said}",
    )


def versions() -> str:
    here, build = machine(), "compiled" if is_compiled() else "interpreted"
    programs = f"{here['python']}, Spark {version('pyspark')}, Penstock {__version__} {build}"
    return f"{here['cores']} cores, {here['cpu']}; {programs}."


def row(walk: Walk, found: Walked) -> str:
    times = f"{found.machine_s:.0f} | {found.all_s:.0f}"
    hands = f"{found.characters} | {found.pastes} | {found.hands_s:.0f}"
    words = f"{found.words} | {found.reading_s:.0f}"
    return f"| {walk.name} | `{walk.page}` | {words} | {hands} | {times} |"


def main() -> int:
    walks = {walk.name: walk for walk in WALKS}
    names = sys.argv[1:] or [*walks]
    if not walks.keys() >= {*names}:
        print(f"usage: python -m benchmarks.newcomers [NAME]…\nnames: {', '.join(walks)}")
        return 2
    print(f"{versions()}\n")
    print("| from | README, and | words | s | typed | pastes | s | machine, s | all, s |")
    print("|---|---|---:|---:|---:|---:|---:|---:|---:|")
    wrong = []
    for name in names:
        with tempfile.TemporaryDirectory() as directory:
            found = go(walks[name], Path(directory))
        print(row(walks[name], found), flush=True)
        if found.wrong:
            wrong.append(f"{name}: {found.wrong}")
        if found.all_s > LIMIT_S:
            wrong.append(f"{name}: took {found.all_s:.0f} s, more than {LIMIT_S}")
    for line in wrong:
        print(line, file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
