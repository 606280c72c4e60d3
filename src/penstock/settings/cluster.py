"""Settings of a node that is one of several.

``settings.py`` says what a declaration is.
"""

from typing import Final

from penstock.settings.kinds import NAME_MAX_BYTES, Boolean, Integer, NameList, Secret, Text

CLIENT_LOCAL: Final = "client-local"
MIN_MASTERS: Final = "min-masters"
RANDOM: Final = "random"
MASTER_LOCATORS: Final = (CLIENT_LOCAL, MIN_MASTERS, RANDOM)
LEADER_LOCATORS: Final = {
    "client-local": CLIENT_LOCAL,
    "balanced": MIN_MASTERS,
    "least-leaders": MIN_MASTERS,
    "random": RANDOM,
}
"""As RabbitMQ has them for queues with leaders."""


class ClusterSettings:
    """The part of ``Settings`` that makes nodes one broker."""

    # fmt: off
    nodes = Integer(1, 1, 64,
        "How many nodes to start on this machine, as one broker for clients: they share the ports,"
        " and each has a directory of its own below `data_dir`. They agree among themselves, or in"
        " the etcd of `cluster_etcd_endpoints`.")
    shares_ports = Boolean(False,
        "Whether other processes may listen on this node's AMQP and NSQ ports too; `nodes` sets"
        " it.")
    cluster_etcd_endpoints = NameList((),
        "`host:port` of each member of etcd. Empty: a single node, for which the other settings of"
        " a cluster have no effect.")
    cluster_name = Text("penstock",
        "Name of the cluster; clusters of different names may share an etcd. A single node shows"
        " its own name if none is set.", max_bytes=64)
    cluster_tags = NameList((),
        "Tags of the cluster, `name=value` each, stored at each start as the global parameter"
        " `cluster_tags`. Empty: the stored ones stay.")
    cluster_secret_file = Text("",
        "File with the secret that all nodes of the cluster share, readable by its owner only. Each"
        " node of a cluster needs it.", min_bytes=0)
    cluster_port = Integer(25672, 0, 65535,
        "TCP port for other nodes of the cluster; 0: a free one.")
    cluster_bind = Text("",
        "Address that listener binds to. Empty: as `bind`.", min_bytes=0, max_bytes=255)
    cluster_address = Text("",
        "Address at which other nodes reach this one. Empty: `cluster_bind`, or the machine's name"
        " where that is all addresses.", min_bytes=0, max_bytes=255)
    cluster_unix_socket = Text("",
        "Unix socket for nodes on the same machine, which they use instead of the port; only for"
        " the user that runs them. Empty: none.", min_bytes=0)
    # A node whose loop stands for 2.5 s does not keep its lease of 3 s alive either, so links need
    # not be more patient than the lease is; on a busy machine three words have time to come.  With
    # the second of ``mirroring`` a cut is over for a mirrored queue in less than 4 s.
    cluster_silence_ms = Integer(2500, 500, 600_000,
        "After this silence a node is disconnected and called again. Nodes send something four"
        " times in that time, and at least every 150 ms. The lease decides which node is gone. But"
        " mirrors that are not reached for a second after that are no longer waited for, and the"
        " leader of a quorum queue that no majority hears for 500 ms is replaced.", unit="ms")
    cluster_lease_ttl_s = Integer(3, 2, 60,
        "After this time without contact to etcd a node counts as gone, and mirrors take over.",
        unit="s")
    cluster_scrub_bytes_per_s = Integer(1 << 20, 0, 1 << 40,
        "How many bytes a second a node reads of the copies of queues whose masters are elsewhere,"
        " to find damage early; at most one round over all of them in an hour. A damaged copy is"
        " dropped and fetched anew. 0: none.",
        unit="per second")
    queue_master_locator = Text(CLIENT_LOCAL,
        "On which node of a cluster a new queue has its master, if neither `x-queue-master-locator`"
        " nor a policy decides: on the declaring client's, on the one with the fewest, or a random"
        " one. Exclusive queues are at their client's node.",
        choices=MASTER_LOCATORS)
    cluster_etcd_user = Text("",
        "User of etcd. Empty: none.", min_bytes=0, max_bytes=NAME_MAX_BYTES)
    cluster_etcd_password = Secret("", "Password of that user.", min_bytes=0)
    cluster_etcd_seal_records = Boolean(False,
        "Whether records of release 0.1 in etcd get their checksums at this start. They are"
        " believed without a check, so remove the setting afterwards.")
    cluster_etcd_tls = Boolean(False,
        "Whether the node uses TLS to etcd.")
    cluster_etcd_cacertfile = Text("",
        "Authorities that sign etcd's certificate. Empty: the system's.", min_bytes=0)
    cluster_etcd_certfile = Text("", "Certificate of this node for etcd. Empty: none.", min_bytes=0)
    cluster_etcd_keyfile = Text("", "Its private key.", min_bytes=0)
    cluster_tls_certfile = Text("",
        "Certificate of this node for other nodes. With it they use TLS, and both sides must show"
        " one that `cluster_tls_cacertfile` has signed.", min_bytes=0)
    # fmt: on
    cluster_tls_keyfile = Text("", "Its private key.", min_bytes=0)
    cluster_tls_cacertfile = Text(
        "", "Authority that signs the certificates of nodes.", min_bytes=0
    )
