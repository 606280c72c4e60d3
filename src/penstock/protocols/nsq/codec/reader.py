"""Bytes of one NSQ client become commands (sans-IO, hot).

In come the chunks as the socket gave them, behind the four bytes that say V2; out come the
commands of ``commands.py``.  The result does not depend on where the chunks were cut, but for
where runs end.  What a chunk leaves unfinished waits here, and is looked at again when enough of
it has come.

    a line, at most 16 KiB      verb and parameters at single spaces; CR before LF is forgiven
    PUB, MPUB, DPUB, IDENTIFY, AUTH    then a size and a body

A publisher sends the same line again and again, so a line that is a publish is parsed once: its
bytes are the key of a dictionary.  Of a message its body is cut out, and one content made of it.

Memory is bounded: lines by ``LINE_BYTES_MAX``, bodies by the limits, known lines by ``LINES_MAX``,
what is made of it at a time by ``WORK_MAX``: then ``receive(b"")`` goes on.
Nothing a peer sends makes this module raise; what is wrong becomes a ``NsqFault`` with nsqd's code
and text, and nothing after it is read.  One thing is stricter than nsqd: an MPUB whose messages
are not exactly as long as it says is refused; there, the rest is read as the next command.
And what comes before a log-in, IDENTIFY and AUTH, has at most ``OPENING_BYTES_MAX``.
"""

from collections.abc import Callable
from typing import Final, final

from librt.strings import read_i32_be
from mypy_extensions import i64

from penstock.core.clock_types import WallMs
from penstock.core.message import PERSISTENT, Message
from penstock.protocols.nsq.codec.commands import (
    BadCommand,
    Command,
    FinishRun,
    NsqFault,
    PublishRun,
    Request,
    decimal,
    quoted,
    text_of,
)
from penstock.protocols.nsq.codec.contents import PERSISTENT_MODE, TRANSIENT_MODE, ContentMaker
from penstock.protocols.nsq.codec.ids import SUFFIXES, IdFactory

MAGIC: Final = b"  V2"
LINE_BYTES_MAX: Final = 16 * 1024
LINES_MAX: Final = 1024
OPENING_BYTES_MAX: Final[i64] = 64 * 1024
"""Of the body of an IDENTIFY or AUTH, which a client sends before it has logged in."""
WORK_MAX: Final[i64] = 2_000
"""Commands and messages made at a time: a few compressed bytes may be millions of short ones."""
_BODY_WORK: Final[i64] = 100
"""What an IDENTIFY or AUTH counts for, whose body is JSON or a password."""
_FIN: Final[i64] = 0x46494E20
_FIN_LINE: Final[i64] = 21
_ID_AT: Final[i64] = 4
_UNFINISHED: Final[i64] = -1
_VERBS: Final = (b"RDY", b"REQ", b"TOUCH", b"FIN", b"NOP", b"SUB", b"CLS", b"IDENTIFY", b"AUTH")
_TRANSIENT_SUFFIX: Final = "#ephemeral"

IsName = Callable[[str], bool]
"""May a topic be called so?"""


@final
class ReaderLimits:
    """What one client may send."""

    def __init__(self, message_bytes: i64, body_bytes: i64, delay_ms: i64) -> None:
        self.message_bytes: i64 = message_bytes
        self.body_bytes: i64 = body_bytes
        self.delay_ms: i64 = delay_ms

    def messages(self) -> i64:
        """In one MPUB, as nsqd counts them: each is four bytes of size and one of body at least."""
        return (self.body_bytes - 4) // 5


@final
class PublishLine:
    """The line of a publish, parsed; its messages are all published alike."""

    def __init__(self, verb: str, topic: str, delay_ms: i64) -> None:
        self.verb = verb
        self.topic = topic
        self.delay_ms: i64 = delay_ms
        self.several: bool = verb == "MPUB"
        name = b"nsq." + topic.encode()
        self.address: bytes = bytes([len(name)]) + name + b"\x00"
        transient = topic.endswith(_TRANSIENT_SUFFIX)
        self.flags: i64 = 0 if transient else PERSISTENT
        self.mode: int = TRANSIENT_MODE if transient else PERSISTENT_MODE


@final
class NsqReader:
    """The receiving half of one connection."""

    def __init__(
        self, limits: ReaderLimits, ids: IdFactory, is_name: IsName, must_log_in: bool = False
    ) -> None:
        self.paused: bool = False  # the session must look before we go on: call again with b""
        self.full: bool = False  # paused because WORK_MAX is reached
        self.must_log_in: bool = must_log_in  # and has not: what it sends is short
        self.begun: bool = False  # IDENTIFY and AUTH come too late, and are not read further
        self._limits = limits
        self._ids = ids
        self._is_name = is_name
        self._maker = ContentMaker()
        self._lines: dict[bytes, PublishLine] = {}
        self._failed: bool = False
        self._rest: list[bytes] = []
        self._rest_bytes: i64 = 0
        self._needed_bytes: i64 = 0
        self._mpub_at: i64 = 0  # the next message of an MPUB that is under way; 0 = none is
        self._left: i64 = 0  # of WORK_MAX
        self._now_ms = WallMs(0)
        self._commands: list[Command] = []

    def logged_in(self) -> None:
        """An AUTH was accepted: what the client sends need not be short any more."""
        self.must_log_in = False

    def begin(self) -> None:
        """The opening is over: the client has subscribed."""
        self.begun = True

    def receive(self, data: bytes, now_ms: WallMs) -> list[Command]:
        """Take a chunk, return what it completed; after a ``NsqFault`` always []."""
        if self._failed:
            return []
        if self._rest_bytes > 0:
            if len(data) > 0:
                self._rest.append(data)
                self._rest_bytes += len(data)
            if self._rest_bytes < self._needed_bytes and not self.paused:
                return []
            data = b"".join(self._rest)
        self._rest = []
        self._rest_bytes = 0
        self._needed_bytes = 1
        self.paused = False
        self.full = False
        self._left = WORK_MAX
        self._now_ms = now_ms
        commands: list[Command] = []
        self._commands = commands
        try:
            done = self._split(data)
        except BadCommand as wrong:
            commands.append(NsqFault(wrong.code, wrong.text))
            self._failed = True
            return commands
        if done < len(data):
            rest = data[done:] if done > 0 else data
            self._rest = [rest]
            self._rest_bytes = len(rest)
        return commands

    def keep(self, data: bytes) -> i64:
        """It came before one may tell what it is; returns how much that is by now."""
        self._rest.append(data)
        self._rest_bytes += len(data)
        return self._rest_bytes

    def take_rest(self) -> bytes:
        """What came behind the last command, and is not to be read as one."""
        rest = b"".join(self._rest)
        self._rest = []
        self._rest_bytes = 0
        return rest

    # -- lines -----------------------------------------------------------------------------

    def _split(self, data: bytes) -> i64:
        """Handle every whole command; returns how many bytes were used up."""
        length: i64 = len(data)
        position: i64 = 0
        finishes: FinishRun | None = None
        while position < length and not self.paused:
            end: i64 = data.find(b"\n", position, position + LINE_BYTES_MAX)
            if end < 0:
                if length - position >= LINE_BYTES_MAX:
                    raise BadCommand("", "")
                self._needed_bytes = length - position + 1
                break
            if end - position == _FIN_LINE - 1 and i64(read_i32_be(data, position)) == _FIN:
                if finishes is None:
                    finishes = FinishRun()
                    self._commands.append(finishes)
                finishes.keys.append(data[position + _ID_AT : end])
                position = end + 1
                self._worked(1)
                continue
            finishes = None
            line = data[position : end + 1]
            known = self._lines.get(line)
            if known is None:
                known = self._parse(line)
            if known is None:
                after = self._request(data, position, end, line)
            elif known.several:
                after = self._publish_several(data, position, end, known)
            else:
                after = self._publish(data, position, end, line, known)
            if after == _UNFINISHED:
                break
            position = after
        return position

    def _worked(self, count: i64) -> None:
        self._left -= count
        if self._left <= 0:
            self.paused = self.full = True

    def _parse(self, line: bytes) -> PublishLine | None:
        """A line not seen before: of a publish, or None."""
        params = _params(line)
        verb = text_of(params[0])
        if verb not in ("PUB", "MPUB", "DPUB"):
            return None
        delays = verb == "DPUB"
        if len(params) < (3 if delays else 2):
            raise BadCommand("E_INVALID", verb + " insufficient number of parameters")
        topic = text_of(params[1])
        if not self._is_name(topic):
            text = f"{verb} topic name {quoted(params[1])} is not valid"
            # nsqd says it twice.
            raise BadCommand("E_BAD_TOPIC", "E_BAD_TOPIC " + text if verb == "MPUB" else text)
        known = PublishLine(verb, topic, self._delay_ms(params[2]) if delays else 0)
        if len(self._lines) >= LINES_MAX:
            self._lines.clear()
        self._lines[line] = known
        return known

    def _delay_ms(self, digits: bytes) -> i64:
        delay_ms = decimal(digits)
        if delay_ms < 0:
            raise BadCommand("E_INVALID", "DPUB could not parse timeout " + text_of(digits))
        largest_ms = int(self._limits.delay_ms)
        if delay_ms > largest_ms:
            raise BadCommand("E_INVALID", f"DPUB timeout {delay_ms} out of range 0-{largest_ms}")
        return delay_ms

    def _request(self, data: bytes, position: i64, end: i64, line: bytes) -> i64:
        """Any other command; returns where the next one begins."""
        params = _params(line)
        verb = params[0]
        has_body = not self.begun and (verb == b"IDENTIFY" or verb == b"AUTH")
        if not has_body or (verb == b"AUTH" and len(params) != 1):
            self._commands.append(Request(params, b""))
            self._worked(1)
            if verb not in _VERBS:
                self.paused = True  # it will be refused
            return end + 1
        start = end + 5
        if not self._has(data, position, start):
            return _UNFINISHED
        size = i64(read_i32_be(data, end + 1))
        name = text_of(verb)
        largest = self._limits.body_bytes
        if largest >= size:
            largest = min(largest, OPENING_BYTES_MAX)
        if size > largest:
            raise BadCommand("E_BAD_BODY", f"{name} body too big {int(size)} > {int(largest)}")
        if size <= 0:
            raise BadCommand("E_BAD_BODY", f"{name} invalid body size {int(size)}")
        if not self._has(data, position, start + size):
            return _UNFINISHED
        self._worked(_BODY_WORK)
        # What follows depends on the answer: it may even be compressed.
        self.paused = True
        self._commands.append(Request(params, data[start : start + size]))
        return start + size

    def _has(self, data: bytes, position: i64, end: i64) -> bool:
        """Is everything there up to ``end``?  If not, so much must be."""
        if len(data) >= end:
            return True
        self._needed_bytes = end - position
        return False

    # -- publishes -------------------------------------------------------------------------

    def _publish(
        self, data: bytes, position: i64, end: i64, line: bytes, known: PublishLine
    ) -> i64:
        """This one, and those of the same line that follow it."""
        length: i64 = len(data)
        head: i64 = len(line)
        largest = self._largest(self._limits.message_bytes)
        bodies: list[bytes] = []
        start = position + head + 4
        while True:
            if start > length:
                self._needed_bytes = start - position
                break
            size = i64(read_i32_be(data, start - 4))
            if size <= 0 or size > largest:
                self._publish_bodies(known, bodies)
                most = self._limits.message_bytes
                raise _bad_size(known.verb, size, most if size > most else largest)
            after = start + size
            if after > length:
                self._needed_bytes = after - position
                break
            bodies.append(data[start:after])
            position = after
            start = after + head + 4
            if start > length or data[after : after + head] != line or len(bodies) >= self._left:
                break
        if len(bodies) == 0:
            return _UNFINISHED
        self._publish_bodies(known, bodies)
        return position

    def _publish_bodies(self, known: PublishLine, bodies: list[bytes]) -> None:
        if len(bodies) > 0:
            self._commands.append(self._run(known, bodies, len(bodies)))
            self._worked(len(bodies))

    def _largest(self, most_bytes: i64) -> i64:
        return min(most_bytes, OPENING_BYTES_MAX) if self.must_log_in else most_bytes

    def _publish_several(self, data: bytes, position: i64, end: i64, known: PublishLine) -> i64:
        start = end + 5
        if not self._has(data, position, start):
            return _UNFINISHED
        size = i64(read_i32_be(data, end + 1))
        if size <= 0:
            raise BadCommand("E_BAD_BODY", f"MPUB invalid body size {int(size)}")
        largest = self._limits.body_bytes
        if largest >= size:
            largest = self._largest(largest)
        if size > largest:
            text = f"MPUB body too big {int(size)} > {int(largest)}"
            raise BadCommand("E_BAD_BODY", text)
        if not self._has(data, position, start + 4):
            return _UNFINISHED
        count = i64(read_i32_be(data, start))
        if count <= 0 or count > self._limits.messages():
            raise BadCommand("E_BAD_BODY", f"MPUB invalid message count {int(count)}")
        if size < 4:
            raise BadCommand("E_BAD_BODY", f"MPUB invalid body size {int(size)}")
        if not self._has(data, position, start + size):
            return _UNFINISHED
        if self._mpub_at == 0:
            self._check_several(data, start + 4, start + size, count)
            self._mpub_at = start + 4 - position
        at = position + self._mpub_at
        after = start + size
        bodies: list[bytes] = []
        while at < after and len(bodies) < self._left:
            body = at + 4
            at = body + i64(read_i32_be(data, at))
            bodies.append(data[body:at])
        is_last = at == after
        self._commands.append(self._run(known, bodies, 1 if is_last else 0))
        self._worked(len(bodies))
        self._mpub_at = 0 if is_last else at - position
        return after if is_last else _UNFINISHED

    def _check_several(self, data: bytes, start: i64, end: i64, count: i64) -> None:
        """Do the messages of an MPUB fill it to its end?  None is published if not."""
        largest = self._limits.message_bytes
        for number in range(count):
            start += 4
            if start > end:
                text = f"MPUB failed to read message({int(number)}) body size"
                raise BadCommand("E_BAD_MESSAGE", text)
            size = i64(read_i32_be(data, start - 4))
            if size <= 0:
                text = f"MPUB invalid message({int(number)}) body size {int(size)}"
                raise BadCommand("E_BAD_MESSAGE", text)
            if size > largest:
                text = f"MPUB message too big {int(size)} > {int(largest)}"
                raise BadCommand("E_BAD_MESSAGE", text)
            if start + size > end:
                raise BadCommand("E_BAD_MESSAGE", "MPUB failed to read message body")
            start += size
        if start < end:
            text = f"MPUB body has {int(end - start)} bytes behind its last message"
            raise BadCommand("E_BAD_BODY", text)

    def _run(self, known: PublishLine, bodies: list[bytes], answers: i64) -> PublishRun:
        """Contents of all of them, with an id and the time of now."""
        messages: list[Message] = []
        size_bytes: i64 = 0
        now_ns = self._now_ms * 1_000_000
        maker = self._maker
        ids = self._ids
        address = known.address
        flags = known.flags
        count: i64 = len(bodies)
        place: i64 = 0
        while place < count:
            taken = ids.take(count - place, now_ns)
            maker.begin(now_ns, known.mode, ids.prefix)
            suffix = ids.first
            last = place + taken
            while place < last:
                body = bodies[place]
                size_bytes += len(body)
                content = maker.make(SUFFIXES[suffix], body)
                messages.append(Message(content, address, flags, WallMs(0)))
                suffix += 1
                place += 1
        delayed = known.delay_ms > 0
        until_ms = WallMs(self._now_ms + known.delay_ms) if delayed else WallMs(0)
        return PublishRun(known.verb, known.topic, messages, size_bytes, answers, until_ms)


def _params(line: bytes) -> list[bytes]:
    """A line at its spaces, without its end."""
    end = len(line) - 1
    if end > 0 and line[end - 1] == 0x0D:
        end -= 1
    return line[:end].split(b" ")


def _bad_size(verb: str, size: i64, largest: i64) -> BadCommand:
    if size <= 0:
        text = f"{verb} invalid message body size {int(size)}"
    else:
        text = f"{verb} message too big {int(size)} > {int(largest)}"
    return BadCommand("E_BAD_MESSAGE", text)
