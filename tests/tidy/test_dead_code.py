"""Every definition of the sources is used by the sources.

A name counts as used where it is read, imported, passed as a keyword or quoted in a string
outside of its own definition.  A function that only tests call is dead code with tests: it goes, or
stands in ``REASONS`` with one.
"""

from __future__ import annotations

import ast
import functools
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

SOURCE = Path(__file__).resolve().parents[2] / "src"

REASONS = {
    "asyncio calls it": "connection_lost eof_received pause_writing resume_writing",
    "click calls it": "export_file format_commands format_options import_file"
    " list_commands parse_args resolve_command shell_complete",
    "http.server calls it": "log_message server_bind",
    "io calls it": "seekable",
    "logging calls it": "emit",
    "Spark calls it": "onQueryIdle onQueryProgress onQueryStarted"
    " onQueryTerminated prepareForTriggerAvailableNow reportLatestOffset streamReader streamWriter",
    "urllib calls it": "redirect_request",
    "a value of an enumeration": "KEEP",
    "benchmarks and golden data are made with it": "queue_purge wait_for_confirms",
    "simulations look at it": "broadcast_count has_question",
    "tests do the disk's jobs with it": "run_all",
    "tests hold SECURITY.md against it": "security_rows",
    "the largest reply, for a client that splits its input": "REPLY_MAX_BYTES",
}
EXCEPTIONS = {name for names in REASONS.values() for name in names.split()}


class Definition(NamedTuple):
    file: str
    name: str
    first: int
    last: int


def definitions(file: str, tree: ast.Module) -> Iterator[Definition]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield Definition(file, node.name, node.lineno, node.end_lineno or node.lineno)
    for line in tree.body:
        targets = line.targets if isinstance(line, ast.Assign) else []
        if isinstance(line, ast.AnnAssign):
            targets = [line.target]
        for target in targets:
            for node in ast.walk(target):
                if isinstance(node, ast.Name):
                    yield Definition(file, node.id, line.lineno, line.end_lineno or line.lineno)


def uses(tree: ast.Module) -> Iterator[tuple[str, int]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            yield node.attr, node.lineno
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            yield node.id, node.lineno
        elif isinstance(node, ast.alias):
            yield node.name.rpartition(".")[2], node.lineno
        elif isinstance(node, ast.keyword) and node.arg:
            yield node.arg, node.lineno
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            node.value.value = ""  # a docstring
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            for name in re.findall(r"\w+", node.value):
                yield name, node.lineno


@functools.cache
def dead() -> dict[str, str]:
    """Name -> file, of what nothing names outside of its own definition."""
    defined: list[Definition] = []
    used: dict[str, list[tuple[str, int]]] = defaultdict(list)
    for path in sorted(SOURCE.rglob("*.py")):
        file, tree = str(path.relative_to(SOURCE)), ast.parse(path.read_text())
        defined += definitions(file, tree)
        for name, line in uses(tree):
            used[name].append((file, line))
    return {
        one.name: one.file
        for one in defined
        if not one.name.startswith("__")
        and all(file == one.file and one.first <= line <= one.last for file, line in used[one.name])
    }


def test_every_definition_is_used() -> None:
    assert {name: file for name, file in dead().items() if name not in EXCEPTIONS} == {}


def test_no_exception_is_out_of_date() -> None:
    assert set(dead()) >= EXCEPTIONS
