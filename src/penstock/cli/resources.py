"""``penstock set-vm-memory-high-watermark`` and ``set-disk-free-limit``.

Arguments, output and words of refusal are those of ``rabbitmqctl``, and its names, with ``_``, are
taken, too, so that runbooks go on to work; the exit codes are ours.  What is set is gone after a
restart, as there.
"""

import json
from typing import Final

import click

from penstock.cli.failure import Failure
from penstock.cli.management import Management, command
from penstock.core.capacity import MEM_RELATIVE, parse_number, parse_size

ABSOLUTE: Final = "absolute"
MEMORY_PATH: Final = "/api/penstock/vm-memory-high-watermark"
DISK_PATH: Final = "/api/penstock/disk-free-limit"
BAD: Final = "Bad argument"


@command(
    """\b
Examples:
  penstock set-vm-memory-high-watermark 0.4
  penstock set-vm-memory-high-watermark absolute 2GB""",
    click.argument("limit", nargs=-1, metavar="FRACTION | absolute LIMIT"),
)
def set_vm_memory_high_watermark(
    limit: tuple[str, ...], management: Management, output: str
) -> None:
    """Set how much memory a broker may use, until it is restarted.

    A fraction of the machine's memory, or so many bytes, with a unit or without. Above it
    publishers are blocked; 0 blocks them all.
    """
    kind, text = _arguments(limit, ABSOLUTE, "fraction")
    if kind == ABSOLUTE:
        _check_threshold(text)
        to = f"{text} bytes"
    else:
        fraction = parse_number(text.removeprefix("-"))
        if fraction is None:
            raise click.UsageError(f"{BAD}.")
        if fraction > 1 or text.startswith("-"):
            raise click.UsageError(f"{BAD}: The threshold should be a fraction between 0.0 and 1.0")
        to = text
    _put("memory threshold", MEMORY_PATH, {kind: text}, to, management, output)


@command(
    """\b
Examples:
  penstock set-disk-free-limit 2GB
  penstock set-disk-free-limit mem_relative 1.0""",
    click.argument("limit", nargs=-1, metavar="LIMIT | mem_relative FRACTION"),
)
def set_disk_free_limit(limit: tuple[str, ...], management: Management, output: str) -> None:
    """Set how much of a broker's disk is to stay free, until it is restarted.

    Bytes, with a unit or without, or a multiple of the machine's memory. With less free disk
    publishers are blocked.
    """
    kind, text = _arguments(limit, MEM_RELATIVE, ABSOLUTE)
    if kind == MEM_RELATIVE:
        if parse_number(text) is None:
            raise click.UsageError(f"{BAD}.")
        to = f"{text} times the total RAM"
    else:
        if parse_size(text) is None:
            raise click.UsageError(f"{BAD}.")
        to = f"{text} bytes"
    _put("disk free limit", DISK_PATH, {kind: text}, to, management, output)


def _arguments(given: tuple[str, ...], word: str, without: str) -> tuple[str, str]:
    """Which kind of limit, and its text: ``word`` and a text, or a text alone."""
    wanted = 2 if given[:1] == (word,) else 1
    if len(given) < wanted:
        raise click.UsageError("not enough arguments.")
    if len(given) > wanted:
        raise click.UsageError("too many arguments.")
    return (word if wanted == 2 else without), given[-1]


def _check_threshold(text: str) -> None:
    if parse_size(text) is not None:
        return
    digits = text.lstrip("0123456789")
    if digits == text:
        raise click.UsageError(f"{BAD}.")
    if digits.startswith("."):
        raise click.UsageError(f"{BAD}: The threshold should be an integer.")
    raise click.UsageError(f"{BAD}: Invalid units.")


def _put(
    what: str, path: str, body: dict[str, str], to: str, management: Management, output: str
) -> None:
    answer = management.put(path, body)
    if not isinstance(answer, dict) or "node" not in answer:
        raise Failure(f"{management.url} does not say that it did", "is that a Penstock?")
    if output == "json":
        click.echo(json.dumps(answer))
    else:
        click.echo(f"Setting {what} on {answer['node']} to {to} ...")
