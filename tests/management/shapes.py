"""The shape of an answer: its keys and the kinds of its values, without what they are.

    python -m tests.management.shapes DIRECTORY > tests/management/shapes.json

makes ``shapes.json`` from captured bodies of RabbitMQ 3.10.8, one file ``NAME.json`` each: a node
with traffic, a client of every kind, and for some a mirrored pair.  A shape is

    {"key": shape, ...}   an object; "key?" may be missing (it was, in some item of a list)
    [shape]               a list; [] = nobody saw an item
    "number|text"         a value, of one of these kinds: flag, null, number, text
"""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

Shape = Any
GIVEN = frozenset({"arguments", "definition", "effective_policy_definition"})
"""Objects whose keys are those somebody declared."""


def shape_of(value: Any) -> Shape:
    if isinstance(value, dict):
        # A node's name is no key of the dialect.
        found = {"NODE" if "@" in key else key: item for key, item in sorted(value.items())}
        return {key: {} if key in GIVEN else shape_of(item) for key, item in found.items()}
    if isinstance(value, list):
        shapes = [shape_of(item) for item in value]
        return [functools.reduce(merged, shapes)] if shapes else []
    return _kind(value)


def _kind(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "flag"
    return "text" if isinstance(value, str) else "number"


def merged(one: Shape, other: Shape) -> Shape:
    """What both are: their keys, those of one alone marked, and their kinds."""
    if isinstance(one, dict) and isinstance(other, dict):
        return _merged_objects(one, other)
    if isinstance(one, list) and isinstance(other, list):
        return [merged(one[0], other[0])] if one and other else one or other
    kinds = {kind for side in (one, other) for kind in _kinds(side)}
    return "|".join(sorted(kinds))


def _merged_objects(one: dict[str, Shape], other: dict[str, Shape]) -> dict[str, Shape]:
    found: dict[str, Shape] = {}
    for name in sorted({key.rstrip("?") for key in (*one, *other)}):
        sides = [side.get(name, side.get(name + "?")) for side in (one, other)]
        known = [side for side in sides if side is not None]
        always = name in one and name in other
        shape = known[0] if len(known) == 1 else merged(known[0], known[1])
        found[name if always else name + "?"] = shape
    return found


def _kinds(shape: Shape) -> list[str]:
    if isinstance(shape, str):
        return shape.split("|")
    return ["object" if isinstance(shape, dict) else "list"]


def missing(theirs: Shape, ours: Shape, path: str = "") -> Iterator[tuple[str, str]]:
    """Where what is in their shape is not in ours: the path, and what is wrong there."""
    if isinstance(theirs, dict) and isinstance(ours, dict):
        for key, shape in theirs.items():
            name = key.rstrip("?")
            found = ours.get(name, ours.get(name + "?"))
            if found is not None:
                yield from missing(shape, found, f"{path}.{name}")
            elif not key.endswith("?"):
                yield f"{path}.{name}", "missing"
    elif isinstance(theirs, list) and isinstance(ours, list):
        if theirs and ours:
            yield from missing(theirs[0], ours[0], path + "[]")
        elif theirs:
            yield path, "nothing in the list"
    elif not set(_kinds(ours)) <= set(_kinds(theirs)) and "null" not in _kinds(theirs):
        yield path, f"{'|'.join(_kinds(ours))} for {'|'.join(_kinds(theirs))}"


def main() -> None:
    bodies = {path.stem: json.loads(path.read_text()) for path in Path(sys.argv[1]).glob("*.json")}
    shapes = {name: shape_of(bodies[name]) for name in sorted(bodies)}
    json.dump(shapes, sys.stdout, indent=1, sort_keys=True)
    print()


if __name__ == "__main__":
    main()
