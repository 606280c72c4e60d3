"""Headers of an AMQP message, read without decoding the rest."""

from typing import final

from librt.strings import read_i32_be
from mypy_extensions import i64

from penstock.core.clock_types import WallMs
from penstock.core.headers import HeaderReader
from penstock.core.message import Message
from penstock.protocols.amqp.codec.header_edit import names_in
from penstock.protocols.amqp.codec.properties import decode_properties, has_header_key
from penstock.protocols.amqp.codec.property_scan import ANYBODY, PropertyScan
from penstock.protocols.amqp.codec.routing_facts import routing_facts


@final
class AmqpHeaderReader(HeaderReader):
    def __init__(self) -> None:
        self._scan = PropertyScan()

    def read(self, message: Message, name: str) -> object:
        content = message.content
        if not has_header_key(content, name.encode()):
            return None
        headers = decode_properties(content).headers
        return None if headers is None else headers.get(name)

    def marks(self, content: bytes, now_ms: WallMs) -> tuple[int, WallMs]:
        scan = self._scan
        end = i64(read_i32_be(content, 3)) + 7
        accepted = scan.read(content, 0, end, now_ms, ANYBODY)
        assert accepted, "the decoder accepted it before"
        return int(scan.flags), scan.expires_at_ms

    def names(self, address: bytes) -> tuple[str, str]:
        return names_in(address)

    def facts(self, content: bytes) -> dict[str, object]:
        return routing_facts(content)
