"""Errors of the AMQP protocol, with their reply codes.

Three things meet here.  The *codec* raises ``MalformedArguments`` and
``UnknownMethod`` when bytes make no sense; the *states* of connection and channel
raise ``ProtocolViolation`` when sensible bytes come at the wrong moment; the *broker*
raises the kinds of ``core.errors`` and knows no code.  ``reply_code`` is the one table
from kind to code, ``HARD_CODES`` the one place that says what closes the connection
and what only the channel.

A reply text has the shape clients read in RabbitMQ's: ``NOT_FOUND - no queue 'x'``.
"""

from typing import Final

from penstock.core import errors as kinds

CONTENT_TOO_LARGE: Final = 311
NO_ROUTE: Final = 312
NO_CONSUMERS: Final = 313
CONNECTION_FORCED: Final = 320
INVALID_PATH: Final = 402
ACCESS_REFUSED: Final = 403
NOT_FOUND: Final = 404
RESOURCE_LOCKED: Final = 405
PRECONDITION_FAILED: Final = 406
FRAME_ERROR: Final = 501
SYNTAX_ERROR: Final = 502
COMMAND_INVALID: Final = 503
CHANNEL_ERROR: Final = 504
UNEXPECTED_FRAME: Final = 505
RESOURCE_ERROR: Final = 506
NOT_ALLOWED: Final = 530
NOT_IMPLEMENTED: Final = 540
INTERNAL_ERROR: Final = 541

NAMES: Final[dict[int, str]] = {
    CONTENT_TOO_LARGE: "CONTENT_TOO_LARGE",
    NO_ROUTE: "NO_ROUTE",
    NO_CONSUMERS: "NO_CONSUMERS",
    CONNECTION_FORCED: "CONNECTION_FORCED",
    INVALID_PATH: "INVALID_PATH",
    ACCESS_REFUSED: "ACCESS_REFUSED",
    NOT_FOUND: "NOT_FOUND",
    RESOURCE_LOCKED: "RESOURCE_LOCKED",
    PRECONDITION_FAILED: "PRECONDITION_FAILED",
    FRAME_ERROR: "FRAME_ERROR",
    SYNTAX_ERROR: "SYNTAX_ERROR",
    COMMAND_INVALID: "COMMAND_INVALID",
    CHANNEL_ERROR: "CHANNEL_ERROR",
    UNEXPECTED_FRAME: "UNEXPECTED_FRAME",
    RESOURCE_ERROR: "RESOURCE_ERROR",
    NOT_ALLOWED: "NOT_ALLOWED",
    NOT_IMPLEMENTED: "NOT_IMPLEMENTED",
    INTERNAL_ERROR: "INTERNAL_ERROR",
}
"""Every code an AMQP 0-9-1 peer may be told, by RabbitMQ's spelling."""

SOFT_CODES: Final[frozenset[int]] = frozenset(
    {
        CONTENT_TOO_LARGE,
        NO_ROUTE,
        NO_CONSUMERS,
        ACCESS_REFUSED,
        NOT_FOUND,
        RESOURCE_LOCKED,
        PRECONDITION_FAILED,
    }
)
"""These close the channel; every other code closes the connection."""


class MalformedArguments(kinds.PenstockError):
    """Bytes that are no method arguments, no table or no properties.

    ``method_key`` names the method they came with; 0 when it is not known here.
    """

    def __init__(self, text: str, method_key: int = 0) -> None:
        super().__init__(text)
        self.text: str = text
        self.method_key: int = method_key


class MalformedTable(MalformedArguments):
    """Arguments of the right shape with a field table inside that is none.

    A case of its own because RabbitMQ answers it differently: it drops the connection
    without a word.
    """


class MalformedText(MalformedArguments):
    """A short string that is not UTF-8; told without naming the method."""


class UnknownMethod(kinds.PenstockError):
    """A method frame whose class and method id no table here knows."""

    def __init__(self, class_id: int, method_id: int) -> None:
        super().__init__(f"unknown method {class_id}.{method_id}")
        self.class_id: int = class_id
        self.method_id: int = method_id


class ProtocolViolation(kinds.PenstockError):
    """The peer broke the protocol; code 0: its connection ends without a word.

    ``method_key`` is ``class_id << 16 | method_id`` of the method at fault, 0 = none.
    """

    def __init__(self, code: int, text: str, method_key: int = 0) -> None:
        name = NAMES.get(code, "")
        super().__init__(f"{name} - {text}")
        self.code: int = code
        self.name: str = name
        self.text: str = text
        self.method_key: int = method_key


def is_hard(code: int) -> bool:
    """True when RabbitMQ closes the whole connection for this code."""
    return code not in SOFT_CODES


KIND_CODES: Final[list[tuple[type[kinds.BrokerError], int]]] = [
    (kinds.NotFound, NOT_FOUND),
    (kinds.AccessRefused, ACCESS_REFUSED),
    (kinds.ResourceLocked, RESOURCE_LOCKED),
    (kinds.PreconditionFailed, PRECONDITION_FAILED),
    (kinds.Blocked, PRECONDITION_FAILED),
    (kinds.NotAllowed, NOT_ALLOWED),
    (kinds.CommandInvalid, COMMAND_INVALID),
    (kinds.NotImplementedYet, NOT_IMPLEMENTED),
    (kinds.Unavailable, INTERNAL_ERROR),
]
"""Kind of error to code, most specific kinds first."""


def reply_code(error: BaseException) -> tuple[int, str]:
    """The code and name a peer is told for ``error``.

    An error that no request caused is a fault of the broker: 541 INTERNAL_ERROR.
    """
    if isinstance(error, ProtocolViolation):
        return error.code, error.name
    for kind, code in KIND_CODES:
        if isinstance(error, kind):
            return code, NAMES[code]
    return INTERNAL_ERROR, NAMES[INTERNAL_ERROR]
