"""Ports derived from other settings: ``port_offset`` moves them, ``nsq`` closes those of NSQ."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from penstock.settings.kinds import Setting

if TYPE_CHECKING:
    from penstock.settings.settings import Settings


def derived_ports(
    settings: "Settings", declared: Mapping[str, Setting]
) -> dict[str, tuple[int, str]]:
    """By key: the port, and why it is this one.  A port that a source names is not moved."""
    found: dict[str, tuple[int, str]] = {}
    for key, setting in declared.items():
        if not key.endswith("_port"):
            continue
        if key.startswith("nsq") and not settings.nsq:
            found[key] = (0, "nsq is false")
        elif settings.port_offset and setting.default and settings.source_of(key) == "default":
            assert isinstance(setting.default, int)
            found[key] = (setting.default + settings.port_offset, "default, moved by port_offset")
    return found
