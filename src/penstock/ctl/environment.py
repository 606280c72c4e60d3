"""Settings under RabbitMQ's names for them: ``environment``, and ``eval`` of two expressions.

``eval`` understands ``application:get_env(rabbit, NAME).`` and
``application:get_all_env(rabbit).``, which people use to look up a setting.  Anything else is
refused: there is no Erlang here, and nothing may change a node this way.
"""

import re
import sys
from collections.abc import Mapping
from typing import Any, Final

from penstock.ctl.call import Call
from penstock.ctl.faults import DATA, SOFTWARE, Fault, Invalid, Refused
from penstock.ctl.output import Facts, Term, erlang

SETTINGS_PATH: Final = "/api/config/effective"
GET_ENV: Final = re.compile(r"application:get_env\(\s*'?(\w+)'?\s*,\s*'?(\w+)'?\s*\)")
GET_ALL_ENV: Final = re.compile(r"application:get_all_env\(\s*'?(\w+)'?\s*\)")
APPLICATION: Final = "rabbit"
NOTHING: Final = "Expression to evaluate is not provided via argument or stdin"
SAME: Final = (
    *("channel_max", "frame_max", "max_message_size_bytes", "consumer_timeout_ms"),
    *("handshake_timeout_ms", "heartbeat_s", "queue_index_embed_msgs_below_bytes"),
    *("queue_index_max_journal_entries", "vm_memory_high_watermark_paging_ratio"),
    *("msg_store_file_size_limit_bytes",),
)
"""Settings that have RabbitMQ's names but for the unit."""
UNIT: Final = re.compile(r"_(bytes|ms|s)$")


def rabbit_env(settings: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {UNIT.sub("", name): settings[name] for name in SAME}
    found |= {
        "credit_flow_default_credit": (
            settings["credit_flow_initial"],
            settings["credit_flow_more_after"],
        ),
        "msg_store_credit_disc_bound": (
            settings["msg_store_credit_initial"],
            settings["msg_store_credit_more_after"],
        ),
        "connection_max": settings["connection_max"] or Term("infinity"),
        "data_dir": settings["data_dir"],
        "default_user": settings["default_user"].encode(),
        "default_vhost": settings["default_vhost"].encode(),
        "disk_free_limit": _limit(settings["disk_free_limit"]),
        "loopback_users": [name.encode() for name in settings["loopback_users"]],
        "tcp_listeners": [settings["amqp_port"]],
        "vm_memory_high_watermark": _limit(settings["vm_memory_high_watermark"]),
    }
    return dict(sorted(found.items()))


def _limit(value: Any) -> Any:
    """``0.4``, ``{absolute,"2GB"}``, or a rule of ours by its name."""
    text = str(value)
    try:
        number = float(text)
    except ValueError:
        if text == "auto":
            return Term(text)
        word, _, share = text.partition(" ")
        return (Term(word), float(share)) if share else (Term("absolute"), text)
    return int(number) if number > 1 else number


def _env(call: Call) -> dict[str, Any]:
    return rabbit_env(call.node.get(SETTINGS_PATH))


def evaluate(call: Call) -> str:
    words = call.take(0, 1)
    text = words[0] if words else _from_input()
    if not text:
        raise Refused(NOTHING, DATA)
    expression = text.strip()
    if not expression.endswith("."):
        raise Invalid('"syntax error before: "')
    expression = expression.removesuffix(".").strip()
    if found := GET_ENV.fullmatch(expression):
        application, name = found.groups()
        env = _env(call) if application == APPLICATION else {}
        return f"{{ok,{erlang(env[name])}}}" if name in env else "undefined"
    if found := GET_ALL_ENV.fullmatch(expression):
        env = _env(call) if found[1] == APPLICATION else {}
        return _listed(env)
    raise Fault(
        SOFTWARE,
        "Error: a Penstock does not run Erlang. Known are 'application:get_env(rabbit, NAME).' and"
        " 'application:get_all_env(rabbit).'",
    )


def _from_input() -> str:
    return "" if sys.stdin is None or sys.stdin.isatty() else sys.stdin.read()


def _listed(env: Mapping[str, Any]) -> str:
    return "[" + ",\n ".join(f"{{{name},{erlang(value)}}}" for name, value in env.items()) + "]"


def environment(call: Call) -> object:
    call.say(f"Application environment of node {call.node.name} ...")
    settings = call.node.get(SETTINGS_PATH)
    env = rabbit_env(settings)
    shown = {name: Term(value) if isinstance(value, str) else value for name, value in env.items()}
    inner = _listed(shown).replace("\n", "\n     ")
    own = _listed(settings).replace("\n", "\n     ")
    return Facts(f"[{{rabbit,\n     {inner}}},\n {{penstock,\n     {own}}}]", settings)
