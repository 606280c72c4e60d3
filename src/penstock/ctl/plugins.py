"""RabbitMQ's plug-ins as ``rabbitmq-plugins`` knows them: part of Penstock, or not there.

What a plug-in adds to RabbitMQ, Penstock has always or never: nothing is switched on or off, no
file of enabled plug-ins is read, and no node has to run.
"""

import re
from collections.abc import Sequence
from typing import Final

from penstock import __version__
from penstock.core.rabbitmq_plugins import BUILT_IN, PLUGINS
from penstock.ctl.call import Call
from penstock.ctl.faults import SOFTWARE, UNAVAILABLE, Invalid, Refused
from penstock.ctl.output import Facts, as_json

HEAD: Final = """\
 Configured: E = explicitly enabled; e = implicitly enabled
 | Status: * = part of Penstock
 |/"""
STAYS: Final = "Plugin configuration unchanged: these are part of Penstock, and always enabled."


def list_plugins(call: Call) -> object:
    words = call.take(0, 1)
    pattern = words[0] if words else ".*"
    call.say(f'Listing plugins with pattern "{pattern}" ...')
    try:
        names = [name for name in PLUGINS if re.search(pattern, name)]
    except re.error as error:
        raise Invalid(f"pattern '{pattern}': {error}") from error
    if call.is_set("enabled") or call.is_set("implicitly-enabled"):
        names = [name for name in names if name in BUILT_IN]
    value = {"status": "running", "format": "normal", "plugins": [_row(name) for name in names]}
    return Facts("\n".join(_lines(call, names)), value)


def _row(name: str) -> dict[str, object]:
    version = __version__ if name in BUILT_IN else ""
    return {
        "name": name,
        "enabled": "enabled" if version else "not_enabled",
        "running": bool(version),
        "version": version,
        "running_version": version,
    }


def _lines(call: Call, names: Sequence[str]) -> list[str]:
    if call.is_set("minimal"):
        return list(names)
    lines = [] if call.is_quiet else [HEAD]
    width = max(map(len, names), default=0)
    for name in names:
        is_here = name in BUILT_IN
        mark, version = ("E*", __version__) if is_here else ("  ", "")
        if call.is_set("verbose"):
            about = f"Version: \t{version}" if is_here else f"Not here: \t{PLUGINS[name]}"
            lines += [f"[{mark}] {name}", f"     {about}"]
        else:
            lines.append(f"[{mark}] {name.ljust(width)} {version}".rstrip())
    return lines


def is_enabled(call: Call) -> object:
    names = call.take(1, len(PLUGINS))
    several = len(names) > 1
    asked = f"plugin{'s' if several else ''} {', '.join(names)}"
    call.say(f"Asking node {call.node.name} if {asked} {'are' if several else 'is'} enabled...")
    missing = [name for name in names if name not in BUILT_IN]
    node = call.node.name
    if missing:
        raise Refused(
            f"{_named(missing)} not enabled on node {node}."
            f" Enabled plugins and dependencies: {', '.join(BUILT_IN)}",
            UNAVAILABLE,
        )
    text = f"{_named(names)} enabled on node {node}"
    return Facts(text, {"message": text, "result": "ok"})


def _named(names: Sequence[str]) -> str:
    return f"Plugins {', '.join(names)} are" if len(names) > 1 else f"Plugin {names[0]} is"


def enable(call: Call) -> object:
    """Also ``set``: the others that are part of Penstock stay enabled."""
    names = _asked(call)
    call.say("Enabling plugins:\n" + "\n".join(names))
    missing = [name for name in names if name not in BUILT_IN]
    if missing:
        why = "".join(f"\n{name}: {PLUGINS[name]}" for name in missing if name in PLUGINS)
        raise Refused(f"{{:plugins_not_found, {as_json(missing)}}}{why}", SOFTWARE)
    return _unchanged()


def disable(call: Call) -> object:
    names = _asked(call)
    call.say("Disabling plugins:\n" + "\n".join(names))
    unknown = [name for name in names if name not in PLUGINS]
    if unknown:
        raise Refused(f"{{:plugins_not_found, {as_json(unknown)}}}", SOFTWARE)
    return _unchanged()


def _asked(call: Call) -> Sequence[str]:
    return BUILT_IN if call.is_set("all") else call.take(1, len(PLUGINS))


def _unchanged() -> Facts:
    lines = ["The following plugins have been configured:", *(f"  {name}" for name in BUILT_IN)]
    return Facts("\n".join([*lines, STAYS]), {"enabled": [], "disabled": [], "set": list(BUILT_IN)})


def directories(call: Call) -> str:
    call.say("Listing plugin directories")
    kinds = ("Plugin archives directory", "Plugin expansion directory", "Enabled plugins file")
    return "\n".join(f"{kind}: (none: plugins are part of Penstock)" for kind in kinds)
