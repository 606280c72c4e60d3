"""The messages of a load run, encoded once: what ``load.Composer`` strings together.

Plain runs need one template per routing key.  Varied runs have ``VARIED_TEMPLATES`` of
them, drawn at random with the publisher's number as seed, so that two runs send the
same: sizes spread evenly over the powers of two between the limits (most real traffic
has many small messages and few large ones), another key, other headers and another
priority each time.
"""

import math
import random
from typing import Final

from penstock.client.load import STAMP_BYTES, Composer
from penstock.client.plan import LoadPlan
from penstock.protocols.amqp.codec.methods import BASIC_PUBLISH, encode_method
from penstock.protocols.amqp.codec.properties import Properties, encode_content

VARIED_TEMPLATES: Final = 1021
"""A prime: no key or header count divides it, so neighbours differ on every round."""
CHANNEL: Final = 1
TRANSIENT: Final = 1
PERSISTENT: Final = 2
PRIORITIES: Final = 10
HEADER_NAMES: Final = ("tenant", "trace-id", "content-version", "region", "retries", "source")


def composer_for(plan: LoadPlan, publisher: int, frame_max: int) -> Composer:
    composer = Composer(publisher)
    rng = random.Random(publisher)  # noqa: S311 - repeatable load, not a secret
    keys = plan.publish_keys(publisher)
    mixed = plan.varied or plan.size_min_bytes != plan.size_max_bytes
    for number in range(max(len(keys), VARIED_TEMPLATES) if mixed else len(keys)):
        add_template(composer, plan, keys[number % len(keys)], rng, frame_max)
    return composer


def add_template(
    composer: Composer, plan: LoadPlan, key: str, rng: random.Random, frame_max: int
) -> None:
    properties = Properties(
        delivery_mode=PERSISTENT if plan.persistent else TRANSIENT,
        headers=varied_headers(rng) if plan.varied else None,
        priority=rng.randrange(PRIORITIES) if plan.varied else None,
    )
    size = varied_size(plan.size_min_bytes, plan.size_max_bytes, rng)
    publish = encode_method(CHANNEL, BASIC_PUBLISH, (0, plan.exchange, key, False, False))
    content = encode_content(properties, filler(size), CHANNEL, frame_max)
    header_bytes = 8 + int.from_bytes(content[3:7], "big")
    stamp_at = len(publish) + header_bytes + 7
    whole = publish + content
    stamp_bytes = stamp_size(size) if plan.stamped else 0
    composer.add_template(whole[:stamp_at], whole[stamp_at + stamp_bytes :], stamp_bytes)


def stamp_size(body_bytes: int) -> int:
    if body_bytes >= STAMP_BYTES:
        return STAMP_BYTES
    return 8 if body_bytes >= 8 else 0


def varied_size(smallest: int, largest: int, rng: random.Random) -> int:
    if smallest == largest:
        return smallest
    exponent = rng.uniform(math.log2(smallest + 1), math.log2(largest + 1))
    return min(largest, max(smallest, round(2**exponent) - 1))


def varied_headers(rng: random.Random) -> dict[str, object]:
    names = rng.sample(HEADER_NAMES, rng.randint(1, len(HEADER_NAMES)))
    headers: dict[str, object] = {}
    for name in names:
        if rng.random() < 0.5:
            headers[name] = rng.randrange(1 << 31)
        else:
            headers[name] = f"{rng.getrandbits(64):x}"[: rng.randint(4, 16)]
    return headers


def filler(size: int) -> bytes:
    """Bytes that do not compress to nothing and are no long run of one value."""
    pattern = bytes((number * 31 + 7) & 0xFF for number in range(256))
    return (pattern * (size // 256 + 1))[:size]
