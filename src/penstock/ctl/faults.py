"""How a verb fails: lines for standard error, and an exit code of sysexits.h, as RabbitMQ has them.

64  wrong usage           65  wrong data, or not possible as things are
67  no such user          69  the node does not answer, or has an alarm
70  the node refuses it   75  too late, or not yet
"""

from typing import Final

USAGE: Final = 64
DATA: Final = 65
NO_USER: Final = 67
UNAVAILABLE: Final = 69
SOFTWARE: Final = 70
NOT_YET: Final = 75


class Fault(Exception):
    """Ends the program with this text on standard error and this exit code."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text


class Invalid(Exception):
    """A command line that makes no sense: main adds what was given, and the usage."""

    head = "Error (argument validation)"

    def __init__(self, text: str, code: int = USAGE) -> None:
        super().__init__(text)
        self.text = text
        self.code = code


class NotAsThingsAre(Invalid):
    """It makes sense, but the node would have to be in another state."""

    head = "Error"


class Refused(Fault):
    """The node said no; ``text`` is why."""

    def __init__(self, text: str, code: int = SOFTWARE) -> None:
        super().__init__(code, f"Error:\n{text}")
