"""``RABBITMQ_*`` variables of the environment, as a source of settings.

In: the environment.  Out: values of our settings, and a warning for each variable that is known and
has no effect here.  A variable beats the files, as there; ours (``PENSTOCK_*``) beat both.  Names
that are not known are mentioned and ignored: the environment belongs to other programs too.
"""

import re
from collections.abc import Callable, Mapping
from typing import Final

from penstock.core.errors import SettingInvalid
from penstock.settings.kinds import Value
from penstock.settings.rabbitmq_keys import LEVELS

PREFIX: Final = "RABBITMQ_"
FILES: Final = ("RABBITMQ_CONFIG_FILE", "RABBITMQ_CONFIG_FILES", "RABBITMQ_ADVANCED_CONFIG_FILE")
"""They name the files, and are looked at where files are read."""
KUBERNETES: Final = re.compile(r"RABBITMQ_(SERVICE_(HOST|PORT\w*)|PORT(_\d+_\w+)?)")
CATEGORIES: Final = ("connection", "channel", "queue")

SIMPLE: Final[Mapping[str, str]] = {
    "RABBITMQ_DEFAULT_USER": "default_user",
    "RABBITMQ_DEFAULT_PASS": "default_pass",
    "RABBITMQ_DEFAULT_VHOST": "default_vhost",
    "RABBITMQ_NODENAME": "node_name",
    "RABBITMQ_NODE_PORT": "amqp_port",
    "RABBITMQ_NODE_IP_ADDRESS": "bind",
    "RABBITMQ_LOG_BASE": "log_dir",
    "RABBITMQ_MNESIA_DIR": "data_dir",
    "RABBITMQ_SSL_CACERTFILE": "ssl_cacertfile",
    "RABBITMQ_SSL_CERTFILE": "ssl_certfile",
    "RABBITMQ_SSL_KEYFILE": "ssl_keyfile",
    "RABBITMQ_SSL_VERIFY": "ssl_verify",
    "RABBITMQ_SSL_FAIL_IF_NO_PEER_CERT": "ssl_fail_if_no_peer_cert",
}
"""Variable ─► the setting that gets its text."""

_ERLANG: Final = "there is no Erlang here"
_PLUGINS: Final = "there are no plugins here"
_TOOLS: Final = "tools talk to the management API"
_HTTPS: Final = "use `https_port` and `https_tls`"
_PEERS: Final = "the port for other nodes is `cluster_port`"
IGNORED: Final[Mapping[str, str]] = {
    "RABBITMQ_ERLANG_COOKIE": "nodes and tools log in with users and passwords",
    "RABBITMQ_USE_LONGNAME": "a node's name is what `node_name` says",
    "RABBITMQ_SERVER_ERL_ARGS": _ERLANG,
    "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": _ERLANG,
    "RABBITMQ_SERVER_START_ARGS": _ERLANG,
    "RABBITMQ_SERVER_CODE_PATH": _ERLANG,
    "RABBITMQ_CTL_ERL_ARGS": _ERLANG,
    "RABBITMQ_IO_THREAD_POOL_SIZE": _ERLANG,
    "RABBITMQ_MAX_NUMBER_OF_PROCESSES": _ERLANG,
    "RABBITMQ_MAX_NUMBER_OF_ATOMS": _ERLANG,
    "RABBITMQ_SCHEDULER_BIND_TYPE": _ERLANG,
    "RABBITMQ_DISTRIBUTION_BUFFER_SIZE": _ERLANG,
    "RABBITMQ_HIPE_COMPILE": _ERLANG,
    "RABBITMQ_BOOT_MODULE": _ERLANG,
    "RABBITMQ_DIST_PORT": _PEERS,
    "RABBITMQ_CTL_DIST_PORT_MIN": _TOOLS,
    "RABBITMQ_CTL_DIST_PORT_MAX": _TOOLS,
    "RABBITMQ_NODE_TYPE": "every node stores data on disk",
    "RABBITMQ_QUORUM_DIR": "quorum queues have no settings here",
    "RABBITMQ_STREAM_DIR": "streams are in the data directory",
    "RABBITMQ_FEATURE_FLAGS": "all features are on",
    "RABBITMQ_FEATURE_FLAGS_FILE": "all features are on",
    "RABBITMQ_ENABLED_PLUGINS": _PLUGINS,
    "RABBITMQ_ENABLED_PLUGINS_FILE": _PLUGINS,
    "RABBITMQ_PLUGINS_DIR": _PLUGINS,
    "RABBITMQ_PLUGINS_EXPAND_DIR": _PLUGINS,
    "RABBITMQ_CONF_ENV_FILE": "set the variables themselves",
    "RABBITMQ_PID_FILE": "the start screen shows the process id",
    "RABBITMQ_HOME": "the program is where it was installed",
    "RABBITMQ_DATA_DIR": "the data directory is `data_dir`",
    "RABBITMQ_VERSION": "the product is Penstock",
    "RABBITMQ_MANAGEMENT_SSL_CACERTFILE": _HTTPS,
    "RABBITMQ_MANAGEMENT_SSL_CERTFILE": _HTTPS,
    "RABBITMQ_MANAGEMENT_SSL_KEYFILE": _HTTPS,
}
"""Variable ─► why it has no effect."""
SECRETS_IN_FILES: Final = frozenset({"RABBITMQ_DEFAULT_USER_FILE", "RABBITMQ_DEFAULT_PASS_FILE"})
"""RabbitMQ's image refuses these two since 3.9: a node with guest / guest would be worse."""


def read_variables(
    environment: Mapping[str, str], read: Callable[[str, str, str], Value]
) -> tuple[dict[str, Value], dict[str, str], list[str]]:
    """Values, the variable of each, and warnings.

    ``read(name, key, text)`` makes the value of a setting; raises SettingInvalid, as we do.
    """
    texts: dict[str, tuple[str, str]] = {}
    warnings: list[str] = []
    for name in sorted(environment):
        text = environment[name]
        if not name.startswith(PREFIX) or name in FILES or KUBERNETES.fullmatch(name):
            continue
        if name in SECRETS_IN_FILES:
            raise SettingInvalid(f"environment: {name} is not read; set {name[:-5]}")
        if name in SIMPLE:
            if text:
                texts[SIMPLE[name]] = (name, text)
        elif name in _SPECIAL:
            texts |= {key: (name, value) for key, value in _SPECIAL[name](name, text).items()}
        else:
            why = IGNORED.get(name, "RabbitMQ's documentation does not know it either")
            warnings.append(f"environment: {name} has no effect here: {why}")
    values = {key: read(name, key, text) for key, (name, text) in texts.items()}
    return values, {key: name for key, (name, _) in texts.items()}, warnings


def _mnesia_base(_name: str, text: str) -> dict[str, str]:
    return {"data_dir": text.rstrip("/") + "/penstock"} if text else {}


def _logs(_name: str, text: str) -> dict[str, str]:
    """``-`` and ``-stderr`` are the console, anything else a file instead of it."""
    if text in ("", "-", "-stderr"):
        return {}
    return {"log_file": text, "log_console": "false"}


def _levels(name: str, text: str) -> dict[str, str]:
    """``debug``, or ``connection=debug,queue=info``, or both."""
    found = {}
    for part in filter(None, text.split(",")):
        category, equals, level = part.rpartition("=")
        if level not in LEVELS or (equals and category not in CATEGORIES):
            raise SettingInvalid(
                f"environment: {name} = {text!r}; allowed: a level ({', '.join(LEVELS)}), or"
                f" category=level for {', '.join(CATEGORIES)}, separated by commas"
            )
        found[f"log_{category}_level" if equals else "log_level"] = LEVELS[level]
    return found


def _watermark(_name: str, text: str) -> dict[str, str]:
    """A share, a percentage or bytes, as RabbitMQ's image takes them."""
    if re.fullmatch(r"[0-9]{1,3}%", text):
        return {"vm_memory_high_watermark": str(int(text[:-1]) / 100)}
    return {"vm_memory_high_watermark": text} if text else {}


_SPECIAL: Final[Mapping[str, Callable[[str, str], dict[str, str]]]] = {
    "RABBITMQ_MNESIA_BASE": _mnesia_base,
    "RABBITMQ_LOGS": _logs,
    "RABBITMQ_LOG": _levels,
    "RABBITMQ_VM_MEMORY_HIGH_WATERMARK": _watermark,
}
SPECIAL: Final = tuple(_SPECIAL)
