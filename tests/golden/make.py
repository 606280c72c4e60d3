"""Makes the golden directories of a release: what its broker leaves on the disk, kept as test data.

    PYTHONPATH=src:. python -m tests.golden.make CHECKOUT [VERSION]

``CHECKOUT`` is a checkout of the release that was set up (``make setup``): its interpreter in
``.venv`` and its sources run the brokers.  ``VERSION`` is that which it has, or will have.  Out
come, in ``tests/golden/VERSION``, which must be new, the archives

    single-clean, single-killed   a node that stands alone, stopped in order or by SIGKILL
    nodes-clean, nodes-killed     two nodes that are one broker (``penstock serve --nodes 2``)

and ``expected.json``: what the release itself finds in a copy of each, compared before with what
was published.  ``test_golden.py`` lets every later release find the same.  ``README.md`` beside
them says what is in them and is written by hand.

It runs for two minutes, most of which it waits until what is due soon is due.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import platform
import shutil
import signal
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from tests.golden.lines import GoldenBroker
from tests.golden.making import (
    NODES,
    NODES_HAVE,
    SINGLE,
    SINGLE_HAS,
    SOON_MS,
    YEARS_MS,
    fill_nodes,
    fill_single,
)
from tests.golden.reading import Data, again, await_counts, hand_over, read
from tests.helpers.nsq_broker import eventually

HERE = Path(__file__).resolve().parent
GRACE_S = 3.0


class Kind(NamedTuple):
    """``opens_with``: settings without which another release would not find the same."""

    fill: Callable[[GoldenBroker, ExitStack], Data]
    settings: Mapping[str, str]
    opens_with: Mapping[str, str]
    has: Mapping[str, int]


NAMED = {
    "node_name": SINGLE["node_name"],
    "range_lease_grace_ms": "600000",
    "staged_set_ttl_s": str(YEARS_MS // 1000),  # by the wall clock
    "staged_producer_ttl_s": str(YEARS_MS // 1000),
}
KINDS = {
    "single": Kind(fill_single, SINGLE, NAMED, SINGLE_HAS),
    "nodes": Kind(fill_nodes, NODES, NAMED | {"nodes": NODES["nodes"]}, NODES_HAVE),
}


def main() -> None:
    parser = argparse.ArgumentParser(description="Make the golden directories of a release.")
    parser.add_argument("checkout", type=Path, help="a checkout of it that was set up")
    parser.add_argument("version", nargs="?", help="of what it writes, if not its own")
    given = parser.parse_args()
    checkout = given.checkout.resolve()
    told = "import penstock; print(penstock.__version__)"
    version = given.version or _said(checkout / ".venv/bin/python", "-c", told)
    target = HERE / version
    target.mkdir()
    expected: Data = {
        "made": {
            "version": version,
            "commit": _said("git", "-C", str(checkout), "rev-parse", "HEAD"),
            "at": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
            "good until": int(time.time()) + YEARS_MS // 1000,
        },
        "archives": {},
    }
    for name, kind in KINDS.items():
        for ending in ("clean", "killed"):
            with tempfile.TemporaryDirectory(prefix="penstock-golden-") as scratch:
                made = _made(kind, ending, Path(scratch), checkout, target / f"{name}-{ending}")
            expected["archives"][f"{name}-{ending}"] = made
            print(f"{name}-{ending}: {sum(made['found']['counts'].values())} messages")
    text = json.dumps(expected, indent=1, sort_keys=True)
    (target / "expected.json").write_text(text + "\n")


def _made(kind: Kind, ending: str, scratch: Path, checkout: Path, archive: Path) -> Data:
    broker = GoldenBroker(scratch / "made", kind.settings, checkout)
    with ExitStack() as clients:
        broker.start()
        try:
            notes = kind.fill(broker, clients)
            if ending == "killed":
                kill(broker)
            else:
                stop(broker, clients)
        finally:
            if broker.process is not None:
                kill(broker)
    ended_s = time.monotonic()
    names_no_place(broker.data_dir, checkout)
    pack(broker.data_dir, archive.with_suffix(".tar.gz"))
    shutil.copytree(broker.data_dir, scratch / "read/data")
    time.sleep(max(0.0, ended_s + SOON_MS / 1000 + GRACE_S - time.monotonic()))
    with GoldenBroker(scratch / "read", kind.opens_with, checkout) as reader:
        await_counts(reader, kind.has)
        found = read(reader)
        if "nodes" in kind.opens_with:
            hand_over(reader)
            await_counts(reader, kind.has)
            other = read(reader)
            found["deferred"] |= other["deferred"]
            assert other | {"deferred": found["deferred"]} == again(found)
    return {"settings": dict(kind.opens_with), "notes": notes, "found": found}


def stop(broker: GoldenBroker, clients: ExitStack) -> None:
    """Nodes are told one by one: 0.1.0's supervisor tells them twice, and then they hurry.

    It starts one again a second later, so none must wait for clients meanwhile.
    """
    nodes = broker.children()
    if nodes:
        clients.close()
    for pid in nodes:
        os.kill(pid, signal.SIGTERM)
    eventually(lambda: not any(Path(f"/proc/{pid}/exe").exists() for pid in nodes), 20)
    broker.stop()
    terms = list(broker.data_dir.rglob("terms"))
    assert len(terms) == max(1, len(nodes)), "it did not stop in order"


def kill(broker: GoldenBroker) -> None:
    """All at once: nodes whose parent dies would stop in order, one that dies is started again."""
    os.kill(broker.pid, signal.SIGSTOP)
    for pid in broker.children():
        os.kill(pid, signal.SIGKILL)
    broker.kill()


def names_no_place(directory: Path, checkout: Path) -> None:
    """Nothing of the machine it was made on."""
    names = [str(directory), str(checkout), f"@{platform.node()}", str(Path.home())]
    for path in filter(Path.is_file, directory.rglob("*")):
        data = path.read_bytes()
        told = [name for name in names if name.encode() in data]
        assert not told, f"{path.relative_to(directory)} names {told}"


def pack(directory: Path, archive: Path) -> None:
    """With modes, but without owners and times."""
    with (
        archive.open("wb") as raw,
        gzip.GzipFile("", "wb", 9, raw, 0) as packed,
        tarfile.open(fileobj=packed, mode="w") as tar,
    ):
        tar.add(directory, "data", filter=_anonymous)


def unpack(archive: Path, directory: Path) -> None:
    """The inverse: ``data`` in that directory."""
    with tarfile.open(archive) as tar:
        if hasattr(tarfile, "data_filter"):
            tar.extractall(directory, filter="data")
        else:  # Debian 12's Python
            tar.extractall(directory)


def _anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = member.mtime = 0
    member.uname = member.gname = ""
    return member


def _said(*command: str | Path) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


if __name__ == "__main__":
    main()
