"""The coordinator's keys about mirrored queues, beside those of ``metadata.py``.

    views/<vhost>/<queue>   who has copies (queue_views.py)
    rings/<vhost>/<queue>   the circle of the group (views.py)
    sync/<vhost>/<queue>    "wanted" or "cancelled": against what the policy says, until it is done
    drained/<node>          it shall have no masters

All that is kept for a queue goes with it, in the same proposal.
"""

from typing import Final
from urllib.parse import unquote

from penstock.cluster.metadata import path

VIEWS: Final = "views"
RINGS: Final = "rings"
SYNC: Final = "sync"
DRAINED: Final = "drained"
OF_A_MIRRORED_QUEUE: Final = (VIEWS, RINGS, SYNC)

WANTED: Final = "wanted"
CANCELLED: Final = "cancelled"

Place = tuple[str, str]
"""Virtual host and queue."""


def mirror_keys(vhost: str, queue: str) -> list[str]:
    return [path(kind, vhost, queue) for kind in OF_A_MIRRORED_QUEUE]


def kind_of(key: str) -> str:
    return key.partition("/")[0]


def parts_of(key: str) -> list[str]:
    return [unquote(part, errors="surrogateescape") for part in key.split("/")[1:]]


def place_of(key: str) -> Place:
    vhost, queue = parts_of(key)
    return vhost, queue
