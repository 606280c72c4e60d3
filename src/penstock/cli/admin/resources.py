"""``penstock set-vm-memory-high-watermark`` and ``set-disk-free-limit``.

Arguments, output and words of refusal are those of ``rabbitmqctl``, and its names, with ``_``, are
taken, too, so that runbooks go on to work; the exit codes are ours.  What is set is gone after a
restart, as there.
"""

import json
from collections.abc import Callable, Sequence

import click

from penstock.cli.failure import Failure
from penstock.cli.management import Management, command, example
from penstock.client.limits import BadLimit, Limit, disk_limit, memory_limit


@command(
    example("set-vm-memory-high-watermark 0.4", "set-vm-memory-high-watermark absolute 2GB"),
    click.argument("limit", nargs=-1, metavar="FRACTION | absolute LIMIT"),
)
def set_vm_memory_high_watermark(
    limit: tuple[str, ...], management: Management, output: str
) -> None:
    """Set how much memory a broker may use, until it is restarted.

    A fraction of the machine's memory, or so many bytes, with a unit or without. Above it
    publishers are blocked; 0 blocks them all.
    """
    _set("memory threshold", memory_limit, limit, management, output)


@command(
    example("set-disk-free-limit 2GB", "set-disk-free-limit mem_relative 1.0"),
    click.argument("limit", nargs=-1, metavar="LIMIT | mem_relative FRACTION"),
)
def set_disk_free_limit(limit: tuple[str, ...], management: Management, output: str) -> None:
    """Set how much of a broker's disk is to stay free, until it is restarted.

    Bytes, with a unit or without, or a multiple of the machine's memory. With less free disk
    publishers are blocked.
    """
    _set("disk free limit", disk_limit, limit, management, output)


def _set(
    what: str,
    limit_of: Callable[[Sequence[str]], Limit],
    words: tuple[str, ...],
    management: Management,
    output: str,
) -> None:
    try:
        limit = limit_of(words)
    except BadLimit as error:
        raise click.UsageError(str(error)) from error
    verb = "set_disk_free_limit" if limit_of is disk_limit else "set_vm_memory_high_watermark"
    answer = management.do(verb, **{limit.kind: limit.text})
    if not isinstance(answer, dict) or "node" not in answer:
        raise Failure(f"{management.url} does not say that it did", "is that a Penstock?")
    if output == "json":
        click.echo(json.dumps(answer))
    else:
        click.echo(f"Setting {what} on {answer['node']} to {limit.to} ...")
