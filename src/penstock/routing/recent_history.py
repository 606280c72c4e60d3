"""``x-recent-history`` exchanges: a queue that is bound gets the last messages at once.

Routes as a fanout.  What is routed here is also kept in the exchange's internal queue
that holds ``x-recent-history-length`` messages (20 without it) and drops the oldest; a message with
the header ``x-recent-history-no-store`` is not.  Spelt as RabbitMQ's plug-in spells it.
"""

from typing import Final

RECENT_HISTORY: Final = "x-recent-history"
HISTORY_LENGTH: Final = "x-recent-history-length"
NO_STORE: Final = "x-recent-history-no-store"
LENGTH: Final = 20


def history_length(arguments: dict[str, object]) -> int:
    """Of arguments that were checked."""
    value = arguments.get(HISTORY_LENGTH, LENGTH)
    return value if isinstance(value, int) else LENGTH
