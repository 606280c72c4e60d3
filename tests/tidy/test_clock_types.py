"""Points in time are typed by their clock (``core/clock_types.py``), so that mypy finds mixes."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

SOURCES = Path(__file__).resolve().parents[2] / "src/penstock"
POINT_IN_TIME = re.compile(
    r"_?(now|wall|mono|(\w+_)?(at|until|since|deadline|due|began|begun|looked|heard))_ms"
)
"""Names of points in time; a duration has another one."""
EXCEPTIONS = {
    "cli": "shows the times that a node or its event log tells",
    "queues/schedule.py": "entries by either clock: each schedule has one",
    "spark": "columns of frames and axes of pages, all of the clock of the event log",
}
"""File or folder below src/penstock -> why its points in time are plain numbers."""


def declared(tree: ast.Module) -> Iterator[tuple[int, str, str]]:
    """Line, name and type of parameters, fields and results; type of a field without one: 'int'."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            given = node.args
            for one in (*given.posonlyargs, *given.args, *given.kwonlyargs):
                if one.annotation is not None:
                    yield one.lineno, one.arg, ast.unparse(one.annotation)
            if node.returns is not None:
                yield node.lineno, node.name, ast.unparse(node.returns)
        elif isinstance(node, ast.AnnAssign):
            yield node.lineno, ast.unparse(node.target), ast.unparse(node.annotation)
        elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant | ast.UnaryOp):
            for target in node.targets:
                if isinstance(target, ast.Attribute):
                    yield node.lineno, target.attr, "int"


def untyped(source: str) -> list[tuple[int, str]]:
    return [
        (line, name)
        for line, name, kind in declared(ast.parse(source))
        if POINT_IN_TIME.fullmatch(name.rpartition(".")[2])
        and re.search(r"\b(int|i64|float)\b", kind)
    ]


def test_points_in_time_are_typed_by_their_clock() -> None:
    found = []
    for path in sorted(SOURCES.rglob("*.py")):
        place = path.relative_to(SOURCES).as_posix()
        if not any(place.startswith(known) for known in EXCEPTIONS):
            found += [f"{place}:{line}: {name}" for line, name in untyped(path.read_text())]
    assert found == []


def test_the_exceptions_are_needed() -> None:
    for known in EXCEPTIONS:
        path = SOURCES / known
        files = path.rglob("*.py") if path.is_dir() else [path]
        assert any(untyped(file.read_text()) for file in files), known


def test_what_is_untyped_is_found() -> None:
    source = """
class Wait:
    def __init__(self, now_ms: i64, patience_ms: i64) -> None:
        self.deadline_ms: dict[str, int] = {}
        self._asked_at_ms = 0
        self.until_ms = WallMs(0)

    def due_ms(self) -> i64: ...
"""
    assert untyped(source) == [
        (3, "now_ms"),
        (8, "due_ms"),
        (4, "self.deadline_ms"),
        (5, "_asked_at_ms"),
    ]
