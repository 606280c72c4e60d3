"""``declared_bytes``: about how much memory something that a client declares will take.

Counted in what Python's objects take; between two looks at the process's size (``Alarms``) it
stands for what has been declared since the first.
"""

from typing import Final

from mypy_extensions import i64

EACH_BYTES: Final[i64] = 10 * 1024
"""Of a queue; a consumer or a binding takes less."""
COPIES: Final[i64] = 3
"""A binding is found by its arguments as one text, and a matcher has a text of its own."""
OBJECT_BYTES: Final[i64] = 80
ENTRY_BYTES: Final[i64] = 120


def declared_bytes(arguments: dict[str, object]) -> i64:
    return EACH_BYTES + COPIES * _bytes_of(arguments)


def _bytes_of(value: object) -> i64:
    size: i64 = OBJECT_BYTES
    if isinstance(value, str):
        size += 4 * len(value)  # beyond ASCII a character may take so much
    elif isinstance(value, bytes):
        size += len(value)
    elif isinstance(value, list):
        for one in value:
            size += _bytes_of(one)
    elif isinstance(value, dict):
        for key in value:
            size += ENTRY_BYTES + 4 * len(key) + _bytes_of(value[key])
    return size
