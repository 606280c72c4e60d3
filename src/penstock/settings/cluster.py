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
        "How many nodes are started on this machine, one broker for clients: they share the ports,"
        " and each has a directory of its own below `data_dir`. They agree among themselves, or in"
        " the etcd of `cluster_etcd_endpoints`.")
    shares_ports = Boolean(False,
        "Whether other processes may listen on this node's AMQP and NSQ ports too; `nodes` sets"
        " it.")
    cluster_etcd_endpoints = NameList((),
        "Where etcd answers, `host:port` of each of its members. Empty: the node stands alone, and"
        " the other settings of this kind mean nothing.")
    cluster_name = Text("penstock",
        "Name of the cluster; clusters of different names share an etcd and know nothing of each"
        " other. A node that stands alone shows its own name where none is set.", max_bytes=64)
    cluster_tags = NameList((),
        "Tags of the cluster, `name=value` each, kept at each start as the global parameter"
        " `cluster_tags`. Empty: those that are kept stay.")
    cluster_secret_file = Text("",
        "File with the secret that all nodes of the cluster share, readable by its owner only. A"
        " node of a cluster needs one.", min_bytes=0)
    cluster_port = Integer(25672, 0, 65535,
        "TCP port for other nodes of the cluster; 0 takes a free one.")
    cluster_bind = Text("",
        "Address that listener binds to. Empty: as `bind`.", min_bytes=0, max_bytes=255)
    cluster_address = Text("",
        "Address at which other nodes reach this one. Empty: `cluster_bind`, or the machine's name"
        " where that is all addresses.", min_bytes=0, max_bytes=255)
    cluster_unix_socket = Text("",
        "Unix socket for nodes on the same machine, which then use it instead of the port; only for"
        " the user that runs them. Empty: none.", min_bytes=0)
    # A node whose loop stands for 2.5 s does not keep its lease of 3 s alive either, so links need
    # not be more patient than the lease is; on a busy machine three words have time to come.  With
    # the second of ``mirroring`` a cut is over for a mirrored queue in less than 4 s.
    cluster_silence_ms = Integer(2500, 500, 600_000,
        "A node that says nothing for so long is disconnected and called again; nodes say something"
        " four times in that time, and four times a second. Who is gone is decided by the lease;"
        " but mirrors that are not reached for a second after that are no longer waited for, and a"
        " leader of a quorum queue that no majority hears for 600 ms has a successor.", unit="ms")
    cluster_lease_ttl_s = Integer(3, 2, 60,
        "After so long without a word to etcd a node counts as gone, and mirrors take over.",
        unit="s")
    cluster_scrub_bytes_per_s = Integer(1 << 20, 0, 1 << 40,
        "How many bytes a second a node reads of the copies of queues whose masters are elsewhere,"
        " to find damage on its disk before they are needed: all of them in a round, at most one"
        " round an hour. A copy that is damaged is given up and fetched anew. 0: nothing.",
        unit="per second")
    queue_master_locator = Text(CLIENT_LOCAL,
        "On which node of a cluster a new queue has its master, where neither"
        " `x-queue-master-locator` nor a policy says it: on that of the client that declares it, on"
        " the one that has the fewest, or by chance. Exclusive queues are with their client.",
        choices=MASTER_LOCATORS)
    cluster_etcd_user = Text("",
        "User at etcd. Empty: none.", min_bytes=0, max_bytes=NAME_MAX_BYTES)
    cluster_etcd_password = Secret("", "Password of that user.", min_bytes=0)
    cluster_etcd_seal_records = Boolean(False,
        "Whether records that release 0.1 wrote in etcd get their checksums when this node starts:"
        " for the first start after that release. What stands there is believed, so remove the"
        " setting afterwards.")
    cluster_etcd_tls = Boolean(False, "Whether etcd is spoken to by TLS.")
    cluster_etcd_cacertfile = Text("",
        "Certificates of whom etcd's is signed by. Empty: the system's.", min_bytes=0)
    cluster_etcd_certfile = Text("", "Certificate of this node for etcd. Empty: none.", min_bytes=0)
    cluster_etcd_keyfile = Text("", "Its private key.", min_bytes=0)
    cluster_tls_certfile = Text("",
        "Certificate of this node for other nodes. With it they speak TLS, and both sides must show"
        " one that `cluster_tls_cacertfile` has signed.", min_bytes=0)
    # fmt: on
    cluster_tls_keyfile = Text("", "Its private key.", min_bytes=0)
    cluster_tls_cacertfile = Text("", "Who signs the certificates of nodes.", min_bytes=0)
