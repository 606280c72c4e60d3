"""What a verb of ``penstockctl`` is."""

from collections.abc import Mapping
from typing import NamedTuple


class Verb(NamedTuple):
    """Where it stands in the help, who carries it out, and how it is used."""

    section: str
    target: str
    """``file:function`` below penstock.ctl."""
    usage: str
    """What may follow it on a command line."""
    summary: str
    switches: Mapping[str, str] = {}
    """Options of its own, and what kind each is."""
