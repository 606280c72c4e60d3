"""Groups whose commands are rows of a table, none of them imported before it is called.

    Section
      name: its help
      name file: its help               the function is not in the file of its own name
      name file:function: its help

A help is what the list of commands shows; the command itself need not repeat it.
"""

from collections.abc import Mapping
from importlib import import_module
from typing import ClassVar, NamedTuple

import click


class Entry(NamedTuple):
    """Where a command lives and the one line the list of commands shows."""

    target: str
    """``file:function`` below the package."""
    section: str
    help: str


def entries_of(table: str) -> dict[str, Entry]:
    found = {}
    section = ""
    for line in table.splitlines():
        if not line.startswith("  "):
            section = line
            continue
        head, _, text = line.strip().partition(": ")
        name, _, target = head.partition(" ")
        function = name.replace("-", "_")
        file, _, other = (target or function).partition(":")
        found[name] = Entry(f"{file}:{other or function}", section, text)
    return found


class LazyGroup(click.Group):
    package: ClassVar[str]
    entries: ClassVar[Mapping[str, Entry]]
    aliases: ClassVar[Mapping[str, str]] = {}

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.entries)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        entry = self.entries.get(self.aliases.get(cmd_name, cmd_name))
        if entry is None:
            return None
        file, _, function = entry.target.partition(":")
        command = getattr(import_module(f"{self.package}.{file}"), function)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        sections: dict[str, list[tuple[str, str]]] = {}
        for name, entry in self.entries.items():
            sections.setdefault(entry.section, []).append((name, entry.help))
        for section, rows in sections.items():
            with formatter.section(section):
                formatter.write_dl(rows)
