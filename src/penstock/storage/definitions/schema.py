"""The tables of ``definitions.db``, and how a file of an older version gets today's.

docs/formats/definitions.md says what is in them.  An upgrade is one transaction: a crash leaves
the old version, which is upgraded at the next start.
"""

from typing import Final

from penstock.storage.definitions.deletions import ALL_WITHOUT_A_ROW, DELETED_QUEUES
from penstock.storage.definitions.followed import FOLLOWED
from penstock.storage.definitions.parameters import (
    GLOBAL_ARE_PARAMETERS,
    GLOBAL_PARAMETERS,
    PARAMETERS,
)
from penstock.storage.definitions.staging import PRODUCERS_OF_USERS, STAGING

FORMAT_VERSION: Final = 13

_LEAVING: Final = """
CREATE TABLE leaving (
    side TEXT, vhost TEXT, name TEXT, below INTEGER NOT NULL,
    PRIMARY KEY (side, vhost, name)) WITHOUT ROWID;
"""
_RANGE_READERS: Final = """
CREATE TABLE range_starts (
    vhost TEXT, queue TEXT, incarnation TEXT NOT NULL, request TEXT NOT NULL,
    seq_id INTEGER NOT NULL, PRIMARY KEY (vhost, queue)) WITHOUT ROWID;
CREATE TABLE range_leases (
    vhost TEXT, queue TEXT, incarnation TEXT NOT NULL, token INTEGER NOT NULL,
    PRIMARY KEY (vhost, queue)) WITHOUT ROWID;
"""
_RULES: Final = """
CREATE TABLE topic_permissions (
    user TEXT, vhost TEXT, exchange TEXT, write TEXT NOT NULL, read TEXT NOT NULL,
    PRIMARY KEY (user, vhost, exchange)) WITHOUT ROWID;
CREATE TABLE policies (
    vhost TEXT, kind TEXT, name TEXT, pattern TEXT NOT NULL, apply_to TEXT NOT NULL,
    priority INTEGER NOT NULL, definition TEXT NOT NULL,
    PRIMARY KEY (vhost, kind, name)) WITHOUT ROWID;
CREATE TABLE limits (
    scope TEXT, owner TEXT, name TEXT, value INTEGER NOT NULL,
    PRIMARY KEY (scope, owner, name)) WITHOUT ROWID;
"""

SCHEMA: Final = (
    """
CREATE TABLE counters (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
INSERT INTO counters VALUES ('next_queue_id', 1);
CREATE TABLE vhosts (
    name TEXT PRIMARY KEY, segment_entries INTEGER NOT NULL,
    description TEXT NOT NULL DEFAULT '', tags TEXT NOT NULL DEFAULT '[]',
    default_queue_type TEXT NOT NULL DEFAULT '',
    protected_from_deletion INTEGER NOT NULL DEFAULT 0) WITHOUT ROWID;
CREATE TABLE users (
    name TEXT PRIMARY KEY, password_hash TEXT NOT NULL, hashing_algorithm TEXT NOT NULL,
    tags TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE permissions (
    user TEXT, vhost TEXT, configure TEXT NOT NULL, write TEXT NOT NULL, read TEXT NOT NULL,
    PRIMARY KEY (user, vhost)) WITHOUT ROWID;
CREATE TABLE exchanges (
    vhost TEXT, name TEXT, type TEXT NOT NULL, auto_delete INTEGER NOT NULL,
    internal INTEGER NOT NULL, arguments TEXT NOT NULL, user TEXT NOT NULL DEFAULT '',
    PRIMARY KEY (vhost, name)) WITHOUT ROWID;
CREATE TABLE queues (
    queue_id INTEGER PRIMARY KEY, incarnation TEXT NOT NULL, vhost TEXT NOT NULL,
    name TEXT NOT NULL, auto_delete INTEGER NOT NULL, arguments TEXT NOT NULL,
    paused INTEGER NOT NULL DEFAULT 0, user TEXT NOT NULL DEFAULT '', UNIQUE (vhost, name));
CREATE TABLE bindings (
    vhost TEXT, source TEXT, destination TEXT, destination_type TEXT, routing_key TEXT,
    arguments TEXT, number INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (vhost, source, destination_type, destination, routing_key, arguments)
    ) WITHOUT ROWID;
CREATE INDEX bindings_by_destination ON bindings (vhost, destination_type, destination);
"""
    + _RULES
    + _LEAVING
    + _RANGE_READERS
    + STAGING
    + PARAMETERS
    + FOLLOWED
    + DELETED_QUEUES
)

UPGRADES: Final = {
    2: """
ALTER TABLE vhosts ADD COLUMN description TEXT NOT NULL DEFAULT '';
ALTER TABLE vhosts ADD COLUMN tags TEXT NOT NULL DEFAULT '[]';
"""
    + _RULES,
    3: "ALTER TABLE queues ADD COLUMN paused INTEGER NOT NULL DEFAULT 0;",
    4: "ALTER TABLE bindings ADD COLUMN number INTEGER NOT NULL DEFAULT 0;" + _LEAVING,
    5: _RANGE_READERS + STAGING,
    6: GLOBAL_PARAMETERS,
    7: FOLLOWED + DELETED_QUEUES + ALL_WITHOUT_A_ROW,
    8: PARAMETERS + GLOBAL_ARE_PARAMETERS,
    9: "ALTER TABLE vhosts ADD COLUMN default_queue_type TEXT NOT NULL DEFAULT '';",
    10: "ALTER TABLE vhosts ADD COLUMN protected_from_deletion INTEGER NOT NULL DEFAULT 0;",
    11: """
ALTER TABLE exchanges ADD COLUMN user TEXT NOT NULL DEFAULT '';
ALTER TABLE queues ADD COLUMN user TEXT NOT NULL DEFAULT '';
""",
    12: PRODUCERS_OF_USERS,
}
"""Version to the statements that make the next one of it."""
