"""Settings of the operation of a node: its name, its log, its first user, its shutdown.

``settings.py`` says what a declaration is.
"""

from typing import Final

from penstock.settings.kinds import NAME_MAX_BYTES, Boolean, Integer, NameList, Text

LEVELS: Final = ("debug", "info", "warning", "error", "critical", "none")
AS_ABOVE: Final = ("", *LEVELS)
FORMATS: Final = ("text", "json")


class OperatingSettings:
    """The part of ``Settings`` that operators of a node look at."""

    # fmt: off
    node_name = Text("",
        "Name of the node. Empty: `penstock@` and the name of the machine.",
        min_bytes=0, max_bytes=NAME_MAX_BYTES)
    accept_missing_security = Boolean(False,
        "Whether the node starts although RabbitMQ's configuration asks for security that Penstock"
        " does not have, such as revocation lists for OAuth 2 servers. Each such line is a warning"
        " then.")
    total_memory_override_bytes = Integer(0, 0, 1 << 50,
        "Memory to assume for the machine, for limits that are shares of it. 0: that of the machine"
        " or its control group.", unit="bytes")
    password_hashing = Text("sha256",
        "How new passwords are hashed: `scrypt`, or `sha256` and `sha512` as in RabbitMQ. With"
        " `scrypt` users with one of RabbitMQ's hashes get a new hash at the next log-in; RabbitMQ"
        " does not import such users.", choices=("sha256", "sha512", "scrypt"))
    password_rule = Text("accept_everything",
        "What a new password must have: `password_min_length` bytes, or a match of"
        " `password_regexp`. Existing passwords stay.",
        choices=("accept_everything", "min_password_length", "password_regexp"))
    password_min_length = Integer(8, 0, 255,
        "Shortest new password, if `password_rule` asks for it.")
    password_regexp = Text("",
        "Regular expression that a new password must match, if `password_rule` asks for it.",
        min_bytes=0)
    default_user_tags = NameList(("administrator",), "Tags of `default_user`.")
    default_permissions_configure = Text(".*",
        "What `default_user` may configure in `default_vhost`.", min_bytes=0)
    default_permissions_write = Text(".*",
        "What `default_user` may write to in `default_vhost`.", min_bytes=0)
    default_permissions_read = Text(".*",
        "What `default_user` may read from in `default_vhost`.", min_bytes=0)
    stop_timeout_s = Integer(60, 1, 86_400,
        "How long an orderly stop may take, a part of it for clients to leave. After it the node"
        " ends at once, as with a second SIGTERM; the next start then reads the journal.",
        unit="s")
    log_level = Text("info", "Least important line that is logged.", choices=LEVELS)
    log_connection_level = Text("",
        "The same for lines about connections. Empty: as `log_level`.", choices=AS_ABOVE)
    log_channel_level = Text("",
        "The same for lines about channels. Empty: as `log_level`.", choices=AS_ABOVE)
    log_queue_level = Text("",
        "The same for lines about queues. Empty: as `log_level`.", choices=AS_ABOVE)
    log_console = Boolean(True, "Whether the log goes to standard error.")
    log_console_level = Text("",
        "Least important line that goes there. Empty: as `log_level`.", choices=AS_ABOVE)
    log_format = Text("text", "Form of the log lines on standard error.", choices=FORMATS)
    log_file = Text("",
        "File for the log besides standard error, in `log_dir` unless it is a whole path. Empty:"
        " none.",
        min_bytes=0)
    log_dir = Text("",
        "Directory of the log file. Empty: `logs` in the data directory.", min_bytes=0)
    log_file_level = Text("",
        "Least important line that goes to the file. Empty: as `log_level`.", choices=AS_ABOVE)
    log_file_format = Text("text", "Form of the lines of the file.", choices=FORMATS)
    log_file_size_bytes = Integer(10_485_760, 0, 1 << 40,
        "Size at which the log file is rotated to `.1`. 0: never.",
        unit="bytes")
    log_file_count = Integer(5, 0, 1000,
        "How many rotated files are kept.")
    log_exchange = Boolean(False,
        "Whether log lines are published to the topic exchange `amq.rabbitmq.log` of"
        " `default_vhost`, with the level as routing key.")
    log_exchange_level = Text("",
        "Least important line published there. Empty: as `log_level`.", choices=AS_ABOVE)
    # fmt: on
    log_exchange_format = Text("text", "Form of the lines published there.", choices=FORMATS)
