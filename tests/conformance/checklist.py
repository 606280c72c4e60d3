"""The checklist of AMQP behaviours, numbers 1 to 104, and where each is put to the test.

A case or a story says which items it is about: "Item 9" or "Items 72, 90 and 91" at the start of
its docstring, or numbers at the end of a story's name.  Some items cannot be asked on a connection
alone (a stop of the broker, an alarm, a restart): ``ELSEWHERE`` names their tests.  ``NOWHERE``
names what has no test, and why; it is to be empty one day.
"""

import re
from collections.abc import Mapping
from typing import Final

from tests.conformance import restricted, tracing
from tests.conformance.runner import load_cases

ITEMS: Final = range(1, 105)

ELSEWHERE: Final[Mapping[int, tuple[str, ...]]] = {
    13: ("interop/test_heartbeats.py::test_the_broker_is_never_silent_for_long",),
    15: ("runtime/test_loop.py::test_sigterm_tells_every_client_and_leaves_with_0",),
    16: (
        "crash/test_disk_full.py::test_publishers_are_held_and_told_and_go_on_when_there_is_room",
    ),
    38: ("interop/test_pika_messages.py::test_confirmed_messages_and_topology_outlive_kill_9",),
    61: ("node/test_heads.py::test_what_a_queue_that_is_stopped_says_to_each_method",),
    77: (
        "protocols/amqp/test_deadlines.py::test_the_channel_is_closed_and_others_get_the_messages",
    ),
    101: ("interop/test_pika_messages.py::test_confirmed_messages_and_topology_outlive_kill_9",),
    103: (
        "management/test_closing.py::test_the_client_is_told_why",
        "interop/test_foreign_clients.py::test_an_application_lives_on_through_two_restarts",
    ),
}
"""Item to tests, as ``file below tests::function``."""

NOWHERE: Final[Mapping[int, str]] = {}
"""Item to reason."""

_DOCSTRING: Final = re.compile(r"Items? ((?:\d+(?:, | and )?)+)")
_NAME: Final = re.compile(r"((?:_\d+)+)$")


def named() -> dict[int, list[str]]:
    """Item to the cases and stories that name it."""
    found: dict[int, list[str]] = {}
    for name, case in load_cases().items():
        if match := _DOCSTRING.match(case.__doc__ or ""):
            for number in re.findall(r"\d+", match[1]):
                found.setdefault(int(number), []).append(name)
    for name in [*restricted.STORIES, *tracing.STORIES]:
        if match := _NAME.search(name):
            for number in match[1].strip("_").split("_"):
                found.setdefault(int(number), []).append(name)
    return found
