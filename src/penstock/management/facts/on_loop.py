"""``OnLoop``: how the thread of management asks the data loop."""

from collections.abc import Awaitable, Callable
from typing import ParamSpec, Protocol, TypeVar

T = TypeVar("T")
P = ParamSpec("P")


class OnLoop(Protocol):
    """Runs a short function on the data loop."""

    def __call__(
        self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs
    ) -> Awaitable[T]: ...
