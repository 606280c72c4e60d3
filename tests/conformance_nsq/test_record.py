"""The record of nsqd 1.3.0 and the cases belong together."""

from tests.conformance_nsq import record
from tests.conformance_nsq.runner import load_cases


def test_every_case_is_recorded_and_every_record_has_its_case() -> None:
    assert set(record.read()) == set(load_cases())


def test_no_record_holds_an_address_of_the_day() -> None:
    lines = [line for lines in record.read().values() for line in lines]
    assert lines
    assert not [line for line in lines if "127.0.0.1" in line]


ERRORS = (
    *("E_BAD_PROTOCOL", "E_INVALID invalid command HELLO", "E_INVALID invalid message ID"),
    *(
        f"E_INVALID cannot {verb} in current state"
        for verb in ("IDENTIFY", "AUTH", "SUB", "RDY", "FIN", "REQ", "TOUCH", "CLS")
    ),
    *(
        f"E_INVALID cannot {verb} in current state (TLS required)"
        for verb in ("AUTH", "SUB", "PUB", "MPUB", "DPUB", "RDY", "CLS", "NOP")
    ),
    "E_INVALID cannot SUB with heartbeats disabled",
    *(f"E_INVALID {verb} insufficient number of parameters" for verb in ("SUB", "PUB", "MPUB")),
    *(f"E_INVALID {verb} insufficient number of params" for verb in ("FIN", "REQ", "TOUCH")),
    *(f"E_INVALID AUTH {fault}" for fault in ("invalid number of parameters", "already set")),
    *(f"E_INVALID RDY {fault}" for fault in ("could not parse count x", "count 2501 out of")),
    *(f"E_INVALID {verb} could not parse timeout x" for verb in ("DPUB", "REQ")),
    "E_INVALID DPUB timeout 3600001 out of range 0-3600000",
    "E_INVALID REQ could not parse timeout -1",
    *(f'E_BAD_TOPIC {verb} topic name "a*b"' for verb in ("PUB", "DPUB", "E_BAD_TOPIC MPUB")),
    *('E_BAD_TOPIC SUB topic name "a*"', 'E_BAD_CHANNEL SUB channel name "a*"'),
    *(f"E_BAD_BODY {verb} body too big" for verb in ("IDENTIFY", "AUTH", "MPUB")),
    *(f"E_BAD_BODY {verb} invalid body size -1" for verb in ("IDENTIFY", "AUTH", "MPUB")),
    *(f"E_BAD_BODY {verb} failed to read body size" for verb in ("IDENTIFY", "AUTH", "MPUB")),
    *(f"E_BAD_BODY {verb} failed to read body" for verb in ("IDENTIFY", "AUTH")),
    "E_BAD_BODY IDENTIFY failed to decode JSON",
    *(
        f"E_BAD_BODY IDENTIFY {field} (-2) is invalid"
        for field in ("heartbeat interval", "output buffer size", "output buffer timeout")
    ),
    *(f"E_BAD_BODY IDENTIFY {field} (-1) is" for field in ("sample rate", "msg timeout")),
    *("E_BAD_BODY MPUB invalid message count 0", "E_BAD_BODY MPUB failed to read message count"),
    *(f"E_BAD_MESSAGE {verb} message too big" for verb in ("PUB", "MPUB", "DPUB")),
    *(f"E_BAD_MESSAGE {verb} invalid message body size 0" for verb in ("PUB", "DPUB")),
    *(f"E_BAD_MESSAGE {verb} failed to read message body" for verb in ("PUB", "MPUB", "DPUB")),
    "E_BAD_MESSAGE MPUB invalid message(1) body size 0",
    "E_IDENTIFY_FAILED cannot enable both deflate and snappy compression",
    "E_SUB_FAILED SUB failed consumers for <t>:c exceeds limit of 1",
    *(f"E_{v}_FAILED {v} <id 1> failed ID not in flight" for v in ("FIN", "REQ", "TOUCH")),
    *(f"E_{v}_FAILED {v} <id 1> failed client does not own" for v in ("FIN", "REQ", "TOUCH")),
    *(f"E_AUTH_FIRST AUTH required before {verb}" for verb in ("SUB", "PUB", "MPUB", "DPUB")),
    *(f"E_UNAUTHORIZED AUTH failed for {verb} on" for verb in ("SUB", "PUB", "MPUB", "DPUB")),
    *("E_AUTH_DISABLED", "E_AUTH_FAILED AUTH failed", "E_UNAUTHORIZED AUTH no authorizations"),
    *(f"E_INVALID {verb} insufficient number of params" for verb in ("REGISTER", "UNREGISTER")),
    *("E_INVALID client must IDENTIFY", "E_INVALID cannot IDENTIFY again"),
    *("E_BAD_BODY IDENTIFY missing fields", "E_BAD_TOPIC REGISTER topic name 'a*b'"),
    *("MSG_TOO_BIG", "BODY_TOO_BIG", "MSG_EMPTY", "BAD_BODY", "BAD_MESSAGE", "TLS_REQUIRED"),
    *("MISSING_ARG_TOPIC", "MISSING_ARG_CHANNEL", "MISSING_ARG_NODE", "METHOD_NOT_ALLOWED"),
    *("INVALID_TOPIC", "INVALID_ARG_TOPIC", "INVALID_ARG_CHANNEL", "INVALID_DEFER"),
    *("INVALID_REQUEST", "INVALID_OPTION", "INVALID_VALUE", "TOPIC_NOT_FOUND", "CHANNEL_NOT_FOUND"),
)
"""What nsqd and nsqlookupd can be brought to say.  Not among them: what only a server says whose
disk fails or that is just ending (E_PUB_FAILED, E_MPUB_FAILED, E_DPUB_FAILED, EXITING,
INTERNAL_ERROR), and E_AUTH_ERROR, whose cause was already told as E_AUTH_FAILED."""


def test_every_error_is_in_the_record() -> None:
    text = "\n".join(line for lines in record.read().values() for line in lines)
    assert [error for error in ERRORS if error not in text] == []
