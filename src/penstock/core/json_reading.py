"""``json_of``: a text of JSON that an operator or a peer wrote, as Python's values."""

import json
from collections.abc import Callable
from typing import Any


def json_of(
    text: str | bytes,
    parse_constant: Callable[[str], object] | None = None,
    parse_float: Callable[[str], object] | None = None,
) -> Any:
    """``json.loads``, with ValueError for whatever it cannot read: values that lie too deep within
    each other, too, for which Python has another exception.
    """
    try:
        return json.loads(text, parse_constant=parse_constant, parse_float=parse_float)
    except RecursionError:
        raise ValueError("too many values within each other") from None
