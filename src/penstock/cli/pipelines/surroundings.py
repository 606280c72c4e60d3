"""What a pipeline has of a program that runs several of them (``run``).

A command that is invoked alone has the process: signals, standard output, a Spark of its own.
Among others it finds a ``Surroundings`` in its click context instead, and is stopped, heard and
given a Spark by that.
"""

import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click


@dataclass
class Surroundings:
    """Of one run of one pipeline."""

    name: str
    stopping: threading.Event
    log: Path  # of the Spark they share
    summary: dict[str, Any] = field(default_factory=dict)  # what the pipeline said at its end

    def summarize(self, summary: dict[str, Any]) -> None:
        """The pipeline has ended."""
        self.summary = summary

    def say(self, line: str) -> None:
        """A line for the log of the program."""
        click.echo(f"{self.name}: {line}", err=True)


def surroundings() -> Surroundings | None:
    """None = the command is alone."""
    context = click.get_current_context(silent=True)
    return None if context is None else context.find_object(Surroundings)
