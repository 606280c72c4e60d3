"""What a node begins with when its data directory is new."""

import re
import secrets

from penstock.broker.administration import CLUSTER_ID, Administration
from penstock.broker.broker import Broker
from penstock.broker.parameters import CLUSTER_NAME, CLUSTER_TAGS
from penstock.broker.rules.access import HASHING, hash_password
from penstock.broker.topology.topics import PREFIX
from penstock.secrets.sources import secret_of
from penstock.settings.settings import Settings
from penstock.storage.definitions.definitions import Definitions
from penstock.storage.definitions.records import (
    PermissionRecord,
    UserRecord,
    VhostMetadata,
    VhostRecord,
)


def create_defaults(definitions: Definitions, settings: Settings) -> None:
    """A virtual host, and an administrator who may do everything in it."""
    user = settings.default_user
    hashed = hash_password(secret_of(settings, "default_pass"), secrets.token_bytes(4))
    tags = list(settings.default_user_tags)
    metadata = VhostMetadata(default_queue_type=settings.default_queue_type)
    entries = settings.queue_index_segment_entries
    definitions.put_vhost(VhostRecord(settings.default_vhost, entries, metadata))
    definitions.put_user(UserRecord(user, hashed, HASHING, tags))
    definitions.put_permission(
        PermissionRecord(
            user,
            settings.default_vhost,
            settings.default_permissions_configure,
            settings.default_permissions_write,
            settings.default_permissions_read,
        )
    )
    if settings.nsq_user_created and settings.nsq_user not in ("", user):
        _create_nsq_user(definitions, settings)
    definitions.commit()


def _create_nsq_user(definitions: Definitions, settings: Settings) -> None:
    """A user for NSQ clients that do not log in; without a password it cannot log in itself."""
    if settings.nsq_vhost != settings.default_vhost:
        entries = settings.queue_index_segment_entries
        definitions.put_vhost(VhostRecord(settings.nsq_vhost, entries))
    definitions.put_user(UserRecord(settings.nsq_user, "", HASHING, []))
    topics = "^" + re.escape(PREFIX)
    definitions.put_permission(
        PermissionRecord(settings.nsq_user, settings.nsq_vhost, topics, topics, topics)
    )


def begin_data(broker: Broker, settings: Settings) -> None:
    """What tells this node's data from any other's is made once, with what its first virtual host
    begins with; what the settings say of the cluster is put at each start.
    """
    administration = Administration(broker, settings.queue_index_segment_entries)
    if broker.parameters.find(CLUSTER_ID) is None:
        identity = f"penstock-cluster-id-{secrets.token_urlsafe(16)}"
        administration.put_global_parameter(CLUSTER_ID, identity)
        if settings.default_vhost in broker.vhosts:
            administration.seed_vhost(settings.default_vhost)
    if settings.source_of("cluster_name") != "default" and not settings.cluster_etcd_endpoints:
        administration.put_global_parameter(CLUSTER_NAME, settings.cluster_name)
    if settings.cluster_tags:
        pairs = [one.partition("=") for one in settings.cluster_tags]
        tags = {name: value for name, _, value in pairs}
        administration.put_global_parameter(CLUSTER_TAGS, tags)
    broker.definitions.commit()
