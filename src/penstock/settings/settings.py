"""Every setting of the broker, declared once.

In come raw sources, out goes one ``Settings``:

    defaults  <  configuration file (TOML)  <  environment  <  flags

RabbitMQ's own file and variables are sources too (``rabbitmq_conf``, ``rabbitmq_variables``).

A declaration is a class attribute of ``Settings``: its name is the key in the file, and
``PENSTOCK_`` + the name in capitals the environment variable, and ``--the-name`` with
dashes the flag; type, default, bounds and sentence stand beside it.  The command line, the
reference page and the checks are all made from these lines, so none of them can forget one.

Rules:
- A key that does not exist stops the start and names the nearest one that does.  A
  misspelt setting that is silently ignored is the worst default there is.
- The environment belongs to others too: Kubernetes sets ``PENSTOCK_PORT`` in every
  container beside a service called penstock.  A foreign ``PENSTOCK_`` name is refused only
  when it looks like a misspelt setting; otherwise it is reported in ``ignored_environment``.
- Whatever is wrong, the message says where it came from, what it was and what is allowed.
- There is no global ``Settings``: an object that needs a value gets it in its constructor.
"""

import difflib
import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import Final, NamedTuple

from penstock.core.errors import SettingInvalid
from penstock.settings.auth import AuthSettings
from penstock.settings.cluster import ClusterSettings
from penstock.settings.derived_ports import derived_ports
from penstock.settings.entry import EntrySettings
from penstock.settings.events import EventSettings, StatisticsSettings
from penstock.settings.kinds import (
    ENCRYPTED,
    ENVIRONMENT_PREFIX,
    NAME_MAX_BYTES,
    Boolean,
    FreeDisk,
    Integer,
    Kind,
    MemoryWatermark,
    NameList,
    Number,
    Secret,
    Setting,
    Text,
    Value,
    form_of,
    is_plain,
)
from penstock.settings.listeners import ListenerSettings
from penstock.settings.nsq import NsqHttpSettings, NsqSettings
from penstock.settings.operating import OperatingSettings
from penstock.settings.rabbitmq_conf import Translated, translate
from penstock.settings.rabbitmq_variables import read_variables
from penstock.settings.secrets import SecretSettings
from penstock.settings.tls import TlsSettings

OTHER_VARIABLES: Final[Mapping[str, str]] = {
    "PENSTOCK_CONFIG": "configuration file, as `--config`",
    "PENSTOCK_CONFIG_FILE": "the same",
    "PENSTOCK_HTTP_URL": "management URL for commands such as `penstock queues`",
    "PENSTOCK_URL": "AMQP URL for `penstock pipeline` and the Spark data source",
    "PENSTOCK_USER": "user of the management API",
    "PENSTOCK_PASSWORD": "password of that user",
    "PENSTOCK_CACERTFILE": "authority of the management API's certificate",
    "PENSTOCK_CERTFILE": "client certificate for the management API, with its key",
    "PENSTOCK_KEYFILE": "the key, if it is another file",
    "PENSTOCK_FAILPOINT": "for crash tests: the place at which the broker kills itself",
    "PENSTOCK_PURE": "`1` runs the interpreted files although compiled ones exist",
    "PENSTOCK_REQUIRE_COMPILED": "`1` refuses to run without the compiled files",
    "PENSTOCK_NO_COMPILE": "`1` at build time: do not compile",
}
"""Variables with our prefix that are no settings, and what they are."""

_KUBERNETES: Final = re.compile(r"PENSTOCK_(SERVICE_(HOST|PORT\w*)|PORT(_\d+_\w+)?)")
_LOOKS_MISSPELT: Final = 0.75
_IS_NEAR: Final = 0.5


class Notes(NamedTuple):
    file_name: str = ""
    ignored_environment: tuple[str, ...] = ()
    """Variables with our prefix that set nothing."""
    warnings: tuple[str, ...] = ()
    unsafe: tuple[str, ...] = ()
    """Lines that ask for security that is not in force."""


NEWER: Final = "4"
"""Of ``compatibility``: RabbitMQ 4.3.6, not 3.10.8."""


class Settings(
    ListenerSettings,
    TlsSettings,
    EntrySettings,
    OperatingSettings,
    NsqSettings,
    NsqHttpSettings,
    EventSettings,
    StatisticsSettings,
    AuthSettings,
    SecretSettings,
    ClusterSettings,
):
    """One value per setting, checked; made by ``load_settings`` and never changed."""

    # fmt: off
    data_dir = Text("",
        "Directory of all data of the broker. Empty: `$STATE_DIRECTORY` if set, else"
        " `/var/lib/penstock` if writable, else `~/.local/share/penstock`.", min_bytes=0)
    bind = Text("127.0.0.1",
        "Address the listeners bind to; `0.0.0.0` opens them to the network.",
        max_bytes=NAME_MAX_BYTES)
    amqp_port = Integer(5672, 0, 65535,
        "TCP port for AMQP clients; 0: a free one, which the start screen shows.")
    http_port = Integer(15672, 0, 65535,
        "TCP port of the management API; 0: a free one.")
    default_user = Text("guest",
        "Administrator created when the data directory is new.", max_bytes=NAME_MAX_BYTES)
    default_pass = Secret("guest", "Password of that user.")
    default_vhost = Text("/",
        "Virtual host created when the data directory is new.", max_bytes=NAME_MAX_BYTES)
    load_definitions = Text("",
        "File of definitions in RabbitMQ's JSON, imported at each start. With it, a new data"
        " directory gets its users and virtual hosts from the file, and no default ones.",
        min_bytes=0)
    static_shovels = Secret("",
        "Shovels that run as long as the node does, besides those of parameters: JSON with a"
        " shovel's value for each name. In `advanced.config` they have RabbitMQ's form.",
        min_bytes=0, max_bytes=1 << 20)
    vhost_defaults = Secret("",
        "Limits, operator policies and users of new virtual hosts whose name matches a pattern, as"
        " JSON ([the form](../guide/rabbitmq-conf.md#new-virtual-hosts)).",
        min_bytes=0, max_bytes=1 << 20)
    shovel_topology_predeclared = Boolean(False,
        "Whether shovels expect queues and exchanges to exist, if their values have no"
        " `src-predeclared` or `dest-predeclared`.")
    shovel_delete_after_duration_floor_s = Integer(60, 0, 1 << 30,
        "Shortest time that a shovel with `src-delete-after-duration` runs.", unit="s")
    loopback_users = NameList(("guest",),
        "Users that may log in only from this machine. Empty lifts the rule.")
    heartbeat_s = Integer(60, 0, 65535,
        "Heartbeat the broker suggests to clients; 0 suggests none.", unit="s")
    consumer_timeout_ms = Integer(1_800_000, 0, 315_360_000_000,
        "Time a consumer may hold a delivery without acknowledging it. After it the channel is"
        " closed with 406 and the message goes to others. 0: no limit. The argument"
        " `x-consumer-timeout` of queues and consumers overrides it.", unit="ms")
    handshake_timeout_ms = Integer(10_000, 100, 3_600_000,
        "Time a new connection has to log in and open its virtual host.", unit="ms")
    frame_max = Integer(131_072, 4096, 134_217_728,
        "Largest frame the broker offers and accepts, with its 8 bytes of overhead.", unit="bytes")
    initial_frame_max_bytes = Integer(0, 0, 134_217_728,
        "Largest frame before a client has logged in. 0: 4096 bytes, or 64 KiB if `auth_oauth2` is"
        " set, since tokens are long.", unit="bytes")
    connection_max = Integer(0, 0, 1 << 31,
        "Connections of the node at a time, of all users and virtual hosts. 0: as many as its file"
        " descriptors allow.")
    channel_max = Integer(2047, 1, 65535, "Channels a connection may open.")
    max_message_size_bytes = Integer(134_217_728, 1, 536_870_912,
        "Largest message body; a larger one closes the channel with 406.", unit="bytes")
    range_lease_grace_ms = Integer(60_000, 1, 86_400_000,
        "How long a queue stays reserved for a Spark query whose connection has ended, so that no"
        " consumer comes before a restart.", unit="ms")
    stream_hold_max_bytes = Integer(1 << 30, 0, 1 << 50,
        "How much more than its limits a stream keeps for groups of Spark that have not read it"
        " yet. 0: retention does not wait for groups.", unit="bytes")
    staged_set_ttl_s = Integer(86_400, 60, 315_360_000,
        "How long rows that a Spark task has staged wait for the commit of their batch; then they"
        " are dropped.", unit="s")
    staged_producer_ttl_s = Integer(2_592_000, 3600, 315_360_000,
        "How long the broker remembers a Spark query, or a write with `txnId`, after its last"
        " batch. One that was forgotten may publish a committed batch again. Of more than 20,000 of"
        " a user, or 100,000 in all, those used last are remembered.", unit="s")
    vm_memory_high_watermark = MemoryWatermark("0.4",
        "Memory the whole broker may use; above it publishers are blocked. A share is of the"
        " machine's memory, or of its control group's limit. 0 blocks all publishers.")
    vm_memory_high_watermark_paging_ratio = Number(0.5, 100.0,
        "Share of the memory for messages above which queues move messages to disk. Above 1: memory"
        " alone never makes them.")
    disk_free_limit = FreeDisk("auto",
        "Space to keep free on the disk of the data directory; with less, publishers are blocked."
        " `auto` is one fiftieth of the disk, at least 50 MB and at most 2 GB. With RabbitMQ's 50"
        " MB a fast publisher may fill a disk between two checks.")
    credit_flow_initial = Integer(400, 0, 1 << 30,
        "Credit of a publishing stage with the next one (connection with channel, channel with"
        " queue): how many messages, or KiB if that is more, may be under way. 0: no credit flow;"
        " then only alarms block publishers.")
    credit_flow_more_after = Integer(200, 1, 1 << 30,
        "After this many of them the sender is granted as many more.")
    msg_store_credit_initial = Integer(4000, 1, 1 << 30,
        "Credit of a queue with the message store, counted likewise: how much may wait for the"
        " disk.")
    msg_store_credit_more_after = Integer(800, 1, 1 << 30,
        "After this many of them the queue is granted as many more.")
    message_timestamp = Text("off",
        "Whether published messages get the property `timestamp` and the header `timestamp_in_ms`,"
        " as by RabbitMQ's interceptor `set_header_timestamp`. `keep`: if the publisher has set"
        " none; `overwrite`: always.", choices=("off", "keep", "overwrite"))
    priority_drop_order = Text("lowest",
        "Which priority a full queue with `drop-head` loses first: the lowest, or the highest as"
        " with RabbitMQ.", choices=("lowest", "highest"))
    compatibility = Text("3.10",
        "The release of RabbitMQ whose behaviour applies where releases differ. With 3.10 an"
        " unknown type of exchange closes the connection, with 4 the channel. With 4, queues show"
        " their type among their arguments, and all dead letters have `x-last-death-*`. AMQP"
        " clients see which right is missing, and need one for a passive declaration. The list of"
        " differences says what is as in 3.10 in both cases.",
        choices=("3.10", NEWER))
    default_queue_type = Text("",
        "Type of queues declared without `x-queue-type`, if their virtual host has none; it becomes"
        " one of their arguments. Queues that cannot be quorum queues (exclusive, auto-delete,"
        " transient) are classic. Empty: classic, and no argument.",
        choices=("", "classic", "quorum"))
    quorum_relaxed_checks_on_redeclaration = Boolean(False,
        "Whether an application may declare a quorum queue again as a classic one. Then only dead"
        " letters, time to live, expiry, lengths and the single active consumer must be the same.")
    queue_index_segment_entries = Integer(16_384, 64, 65_536,
        "Messages per segment file of the queue index. A virtual host keeps the value with which it"
        " was made.")
    queue_index_max_journal_entries = Integer(32_768, 64, 1 << 30,
        "When the journal alone has more messages of one queue, they are written to its segments."
        " Queues are checked four times a second.")
    queue_index_embed_msgs_below_bytes = Integer(4096, 0, 1 << 20,
        "Messages from this size on go to the message store, smaller ones into the queue index.",
        unit="bytes")
    msg_store_file_size_limit_bytes = Integer(16_777_216, 65_536, 1 << 31,
        "Size at which the message store begins a new file.", unit="bytes")
    journal_file_size_bytes = Integer(16_777_216, 1_048_576, 1 << 30,
        "Size of one journal file, allocated when the file is begun.", unit="bytes")
    journal_size_limit_bytes = Integer(134_217_728, 2_097_152, 1 << 40,
        "Size of the whole journal above which its oldest file is retired.", unit="bytes")
    # fmt: on

    def __init__(
        self, values: Mapping[str, Value], sources: Mapping[str, str], notes: Notes | None = None
    ) -> None:
        self._values = {key: values.get(key, DECLARED[key].default) for key in DECLARED}
        self._sources = dict(sources)
        self._notes = notes or Notes()
        self.file_name, self.ignored_environment, self.warnings, self.unsafe = self._notes

    def value_of(self, key: str) -> Value:
        return self._values[key]

    def source_of(self, key: str) -> str:
        """Where the value came from: default, file, environment, flag, or a reason in words."""
        return self._sources.get(key, "default")

    def with_data_dir(self, data_dir: str, reason: str) -> "Settings":
        """The same settings, the data directory chosen by the caller for ``reason``."""
        return self.with_values({"data_dir": data_dir}, reason)

    def with_values(self, values: Mapping[str, Value], reason: str) -> "Settings":
        """The same settings with other values, chosen by the caller for ``reason``."""
        sources = {**self._sources, **dict.fromkeys(values, reason)}
        return Settings({**self._values, **values}, sources, self._notes)

    def with_warnings(self, warnings: tuple[str, ...]) -> "Settings":
        return Settings(self._values, self._sources, self._notes._replace(warnings=warnings))


SECTIONS: Final[Mapping[str, type]] = {
    "Users, limits and storage": Settings,
    "Listeners": ListenerSettings,
    "TLS": TlsSettings,
    "Who may connect": EntrySettings,
    "Operation and log": OperatingSettings,
    "NSQ": NsqSettings,
    "NSQ over HTTP, nsqlookupd and statsd": NsqHttpSettings,
    "Event log": EventSettings,
    "Statistics": StatisticsSettings,
    "Users from elsewhere": AuthSettings,
    "Secrets": SecretSettings,
    "Cluster": ClusterSettings,
}
"""Where the settings of each section are declared."""
DECLARED: Final[Mapping[str, Setting]] = {
    key: declared
    for part in SECTIONS.values()
    for key, declared in vars(part).items()
    if isinstance(declared, Kind)
}
"""Every setting by its key, in the order of declaration."""
SECRETS: Final = frozenset(key for key, kind in DECLARED.items() if isinstance(kind, Secret))
"""Settings whose values no message and no operator is shown."""


def load_settings(
    file_text: str | None,
    environment: Mapping[str, str],
    flags: Mapping[str, str],
    file_name: str = "",
    conf: Sequence[tuple[str, str]] = (),
) -> Settings:
    """Merge and check the sources; raises ``SettingInvalid`` for the first fault found.

    ``conf``: files in RabbitMQ's style by name and text; they and RabbitMQ's variables are weaker
    than ours.
    """
    theirs, places, warnings, unsafe = _read_conf(conf)
    from_file = _read_file(file_text or "", f"file {file_name}" if file_name else "file")
    from_rabbit, variables, more = read_variables(environment, _read_variable)
    from_environment, ignored = _read_environment(environment)
    from_flags = _read_flags(flags)
    more += [
        f"flag: {DECLARED[key].flag}: all users of this machine can read it in the list of"
        " processes; put it into a file and write file: and the name of that"
        for key in SECRETS & from_flags.keys()
        if is_plain(str(from_flags[key]))
    ]
    sources = {
        **places,
        **dict.fromkeys(from_file, "file"),
        **{key: f"environment, {name}" for key, name in variables.items()},
        **dict.fromkeys(from_environment, "environment"),
        **dict.fromkeys(from_flags, "flag"),
    }
    merged = {**theirs, **from_file, **from_rabbit, **from_environment, **from_flags}
    for key, (port, reason) in derived_ports(Settings(merged, sources), DECLARED).items():
        merged[key], sources[key] = port, reason
    name = file_name or ", ".join(name for name, _ in conf)
    return Settings(merged, sources, Notes(name, ignored, (*warnings, *more), tuple(unsafe)))


def _read_conf(files: Sequence[tuple[str, str]]) -> Translated:
    """The values of files in RabbitMQ's style, where each stands, and what they say in vain."""
    found = translate(files)
    for key, value in found.values.items():
        setting = DECLARED[key]
        if key not in SECRETS and isinstance(value, str) and form_of(value) == ENCRYPTED:
            raise SettingInvalid(f"{found.places[key]}: {key} is no secret, and is not decrypted")
        _checked(setting, found.places[key], key, value, value)
    return found


def _read_variable(name: str, key: str, text: str) -> Value:
    setting = DECLARED[key]
    return _checked(setting, "environment", name, text, setting.from_text(text))


def _read_file(text: str, where: str) -> dict[str, Value]:
    try:
        parsed: dict[str, object] = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # a number may be too long, a list too deep
        raise SettingInvalid(f"{where}: not TOML: {error}") from error
    values = {}
    for key, raw in parsed.items():
        setting = _declared(key, where, key, attrgetter("key"))
        values[key] = _checked(setting, where, key, raw, setting.from_toml(raw))
    return values


def _read_environment(environment: Mapping[str, str]) -> tuple[dict[str, Value], tuple[str, ...]]:
    """What the variables set, and the names with our prefix that set nothing."""
    values = {}
    ignored = []
    for name in sorted(environment):
        key = _set_by_variable(name)
        if key:
            setting = DECLARED[key]
            text = environment[name]
            values[key] = _checked(setting, "environment", name, text, setting.from_text(text))
        elif _is_foreign(name):
            ignored.append(name)
    return values, tuple(ignored)


def _read_flags(flags: Mapping[str, str]) -> dict[str, Value]:
    values = {}
    for key, text in flags.items():
        flag = "--" + key.replace("_", "-")
        setting = _declared(key, "flag", flag, attrgetter("flag"))
        values[key] = _checked(setting, "flag", flag, text, setting.from_text(text))
    return values


def _declared(key: str, source: str, spelling: str, spelt: Callable[[Setting], str]) -> Setting:
    setting = DECLARED.get(key)
    if setting is None:
        raise _unknown(source, spelling, key, spelt)
    return setting


def _unknown(
    source: str, spelling: str, key: str, spelt: Callable[[Setting], str]
) -> SettingInvalid:
    normal = key.lower().replace("-", "_")
    near = difflib.get_close_matches(normal, DECLARED, n=1, cutoff=_IS_NEAR)
    advice = f"did you mean {spelt(DECLARED[near[0]])!r}?" if near else _all_spelt(spelt)
    return SettingInvalid(f"{source}: there is no setting {spelling!r}; {advice}")


def _all_spelt(spelt: Callable[[Setting], str]) -> str:
    return "there are " + ", ".join(spelt(setting) for setting in DECLARED.values())


def _set_by_variable(name: str) -> str:
    """The key a variable sets, "" if it sets none; refuses what looks like a slip."""
    if not name.startswith(ENVIRONMENT_PREFIX) or name in OTHER_VARIABLES:
        return ""
    key = name[len(ENVIRONMENT_PREFIX) :].lower()
    if key in DECLARED and name == DECLARED[key].environment_name:
        return key
    if _is_foreign(name) and difflib.get_close_matches(key, DECLARED, n=1, cutoff=_LOOKS_MISSPELT):
        raise _unknown("environment", name, key, attrgetter("environment_name"))
    return ""


def _is_foreign(name: str) -> bool:
    return (
        name.startswith(ENVIRONMENT_PREFIX)
        and name not in OTHER_VARIABLES
        and not _KUBERNETES.fullmatch(name)
    )


def _checked(
    setting: Setting, source: str, spelling: str, raw: object, value: Value | None
) -> Value:
    if value is None or not setting.within_bounds(value):
        shown = "(hidden)" if setting.key in SECRETS else repr(raw)
        raise SettingInvalid(f"{source}: {spelling} = {shown}; allowed: {setting.allowed()}")
    return value
