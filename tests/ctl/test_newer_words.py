"""Words of rabbitmq-queues, rabbitmq-streams and rabbitmq-plugins, and those that came with 4.x."""

from __future__ import annotations

import base64
import functools
import hashlib
import json

import pika
import pytest

from penstock import __version__
from penstock.client.local_node import find_control
from penstock.core.rabbitmq_plugins import BUILT_IN, PLUGINS
from tests.ctl.conftest import penstockctl
from tests.helpers.live_broker import LiveBroker


@pytest.fixture(scope="module")
def queues(live: LiveBroker) -> LiveBroker:
    with pika.BlockingConnection(pika.URLParameters(live.url)) as client:
        channel = client.channel()
        channel.queue_declare("members", durable=True, arguments={"x-queue-type": "quorum"})
        channel.queue_declare("old", durable=True)
        channel.confirm_delivery()
        for number in range(3):
            properties = pika.BasicProperties(message_id=f"m{number}", headers={"a": number})
            channel.basic_publish("", "members", b"text %d" % number, properties)
        stream = {"x-queue-type": "stream", "x-message-deduplication": True}
        channel.queue_declare("log", durable=True, arguments=stream)
        channel.queue_declare("bare", durable=True, arguments={"x-queue-type": "stream"})
        for number in range(3):
            headers = {"x-deduplication-header": f"orders:{number}"}
            channel.basic_publish("", "log", b"m", pika.BasicProperties(headers=headers))
        channel.basic_qos(prefetch_count=5)
        kept = {"x-stream-offset": "first", "x-stream-automatic-offset-tracking": True}
        for method, _, _ in channel.consume("log", arguments=kept, inactivity_timeout=30):
            channel.basic_ack(method.delivery_tag)
            if method.delivery_tag == 2:
                break
        channel.basic_consume("log", lambda *_: None, consumer_tag="old", arguments=kept)
    return live


@pytest.mark.parametrize(
    "line, code, told",
    [
        ("quorum_status members", 0, "leader"),
        ("quorum_status old", 69, "{:unsupported, :rabbit_classic_queue}"),
        ("quorum_status nosuch", 65, "queue 'nosuch' was not found in virtual host '/'"),
        ("peek members 2", 0, "m1"),
        ("peek members 9", 69, "Target queue does not have a message at that position"),
        ("peek nosuch 1", 69, "Target queue was not found in virtual host '/'"),
        ("peek members 0", 64, '"position value must be a positive integer"'),
        ("stream_status log", 0, "committed_offset"),
        ("stream_status log --tracking", 0, "orders"),
        ("stream_status old", 69, "Cannot get stream status of a classic queue"),
        ("stream_status nosuch", 65, "queue 'nosuch' was not found in virtual host '/'"),
        ("list_stream_tracking log", 0, "writer"),
        ("list_stream_tracking log --offset", 0, "ctag"),
        ("list_stream_tracking bare", 0, "Listing tracking information for stream bare"),
        ("list_stream_tracking log --offset --writer", 64, "Specify only one of"),
        ("list_stream_tracking nosuch", 69, "The stream does not exist."),
        ("list_stream_consumers", 0, "offset_lag"),
        ("reset_offset --stream log", 64, "not enough arguments."),
        ("reset_offset --stream nosuch --reference a", 69, "The stream does not exist"),
        ("reset_offset --stream bare --reference a", 69, "There is no stored offset for this"),
        ("reset_offset --stream log --reference old", 0, "Done"),
        ("list_stream_consumers stream nosuch", 64, "nosuch"),
        ("add_member members @NODE@", 0, "Adding a member for queue members"),
        ("add_member members rabbit@other", 64, "rabbit@other is not a member of the cluster"),
        ("add_member old @NODE@", 69, "classic_queue_not_supported"),
        ("delete_member members @NODE@", 69, "last_node"),
        ("grow @NODE@ all", 0, "Growing all queues on"),
        ("grow @NODE@ some", 64, "strategy 'some' is not recognised."),
        ("grow rabbit@other all", 64, "rabbit@other is not a member of the cluster"),
        ("shrink @NODE@", 0, "the last node cannot be removed"),
        ("shrink rabbit@other", 69, "{:node_not_running, :rabbit@other}"),
        ("check_if_new_quorum_queue_replicas_have_finished_initial_sync", 0, "no queues with"),
        ("check_for_quorum_queues_without_an_elected_leader .*", 0, "responsive leader"),
        ("list_policies_that_match members", 0, "policy-of-members"),
        ("list_policies_that_match old", 0, "Listing policies that match queue 'old'"),
        ("list_policies_that_match nosuch", 65, "was not found"),
        ("check_if_cluster_has_classic_queue_mirroring_policy", 0, "no policies"),
        ("reconcile_vhosts", 0, "Will try to initiate virtual host reconciliation"),
        ("has_reached_target_cluster_size", 0, "has been reached"),
        ("check_if_metadata_store_is_initialized", 0, "has completed its initialization"),
        ("check_if_any_deprecated_features_are_used", 0, "no deprecated features in use"),
        ("list_deprecated_features --used", 0, "Listing deprecated features in use"),
        ("set_permissions_globally guest .* .* .*", 0, "in all virtual hosts"),
        ("set_permissions_globally nosuch a b c", 67, "User nosuch does not exist"),
        ("clear_auth_backend_cache", 0, "Will clear rabbitmq_auth_backend_cache"),
        ("reset_node_auth_attempt_metrics", 0, "Reset auth attempt metrics"),
        ("reset_stats_db", 0, "Resetting statistics database"),
        ("discover_peers", 0, "[:@NODE@]"),
        ("cipher_suites -q", 0, "TLS_AES_256_GCM_SHA384"),
        ("cipher_suites --format erlang", 64, "Format should be openssl"),
        ("hash_password x --hashing-algorithm crc", 64, "sha256, sha512, md5"),
        ("is_enabled rabbitmq_shovel", 0, "Plugin rabbitmq_shovel is enabled on node @NODE@"),
        ("is_enabled rabbitmq_shovel rabbitmq_stomp", 69, "Plugin rabbitmq_stomp is not enabled"),
        ("enable rabbitmq_shovel rabbitmq_management", 0, "Plugin configuration unchanged"),
        ("enable rabbitmq_stomp", 70, '{:plugins_not_found, ["rabbitmq_stomp"]}'),
        ("enable", 64, "not enough arguments."),
        ("set rabbitmq_management", 0, "always enabled"),
        ("disable rabbitmq_shovel", 0, "always enabled"),
        ("disable nosuch", 70, '{:plugins_not_found, ["nosuch"]}'),
        ("list -q shovel", 0, f"[E*] rabbitmq_shovel            {__version__}"),
        ("list -v stomp", 0, "Not here: \tSTOMP"),
        ("list (", 64, "pattern '('"),
        ("directories", 0, "Enabled plugins file: (none"),
    ],
)
def test_other_programs(line: str, code: int, told: str, queues: LiveBroker) -> None:
    """Codes are those of 4.3.6 for a node that stands alone."""
    control = find_control({"PENSTOCK_DATA_DIR": str(queues.data_dir)})
    assert control is not None
    node = control.node
    policy = ("policy-of-members", "^mem", '{"max-length":9}', "--apply-to", "quorum_queues")
    assert penstockctl(queues.data_dir, "set_policy", *policy).code == 0
    said = penstockctl(queues.data_dir, *line.replace("@NODE@", node).split())
    assert (said.code, told.replace("@NODE@", node) in said.out + said.err) == (code, True), said


def test_plug_ins_are_listed_as_programs_read_them(queues: LiveBroker) -> None:
    minimal = penstockctl(queues.data_dir, "list", "-m", "-q", "-E").out.split()
    assert minimal == list(BUILT_IN)
    assert minimal == penstockctl(queues.data_dir, "list", "-m", "-q", "-e").out.split()
    told = json.loads(penstockctl(queues.data_dir, "list", "--formatter", "json").out)["plugins"]
    assert {row["name"]: row["running"] for row in told} == {
        name: not missing for name, missing in PLUGINS.items()
    }


@pytest.mark.parametrize("algorithm, size", [("sha256", 32), ("sha512", 64), ("md5", 16)])
def test_a_hashed_password_is_what_definitions_have(algorithm: str, size: int) -> None:
    said = penstockctl("/nowhere", "hash_password", "-q", "x", "--hashing-algorithm", algorithm)
    hashed = base64.b64decode(said.out)
    assert hashed[4:] == hashlib.new(algorithm, hashed[:4] + b"x").digest()
    assert len(hashed) == 4 + size


def test_mirroring_policies_are_found(queues: LiveBroker) -> None:
    run_here = functools.partial(penstockctl, queues.data_dir)
    assert run_here("set_policy", "ha", "^ha", '{"ha-mode":"all"}').code == 0
    assert "ha\t^ha" in run_here("list_policies_with_classic_queue_mirroring").out
    assert "ha\t" not in run_here("list_operator_policies_with_classic_queue_mirroring").out
    check = run_here("check_if_cluster_has_classic_queue_mirroring_policy")
    assert (check.code, "ha" in check.err) == (69, True)
    assert run_here("clear_policy", "ha").code == 0


# -- protection of virtual hosts, as rabbitmqctl 4.3.6 says it ---------------------------------

PROTECTED = (
    "Cannot delete this virtual host: it is protected from deletion. To lift the protection,"
    " inspect and update its metadata"
)
PROTECTION = [
    ("add_vhost pv", 0, 'Adding vhost "pv" ...\n', ""),
    (
        "enable_vhost_deletion_protection pv",
        0,
        'Protecting virtual host "pv" from removal by updating its metadata...\n',
        "",
    ),
    ("delete_vhost pv", 65, 'Deleting vhost "pv" ...\n', f"Error:\n{PROTECTED}\n"),
    (
        "disable_vhost_deletion_protection pv",
        0,
        'Removing deletion protection from virtual host "pv" by updating its metadata...\n',
        "",
    ),
    (
        "enable_vhost_deletion_protection nosuch",
        65,
        'Protecting virtual host "nosuch" from removal by updating its metadata...\n',
        "Virtual host 'nosuch' does not exist\n",
    ),
    (
        "update_vhost_metadata pv --protected-from-deletion=true",
        0,
        'Updating metadata of vhost "pv" ...\n',
        "",
    ),
    ("delete_vhost pv", 65, 'Deleting vhost "pv" ...\n', f"Error:\n{PROTECTED}\n"),
    (
        "update_vhost_metadata pv --protected-from-deletion=false",
        0,
        'Updating metadata of vhost "pv" ...\n',
        "",
    ),
    (
        "update_vhost_metadata nosuch --description x",
        65,
        'Updating metadata of vhost "nosuch" ...\n',
        "Virtual host 'nosuch' does not exist\n",
    ),
    ("delete_vhost pv", 0, 'Deleting vhost "pv" ...\n', ""),
]


def test_a_protected_virtual_host_is_kept(live: LiveBroker) -> None:
    """The lines of rabbitmqctl 4.3.6, with its exit codes and texts."""
    for line, code, out, err in PROTECTION:
        said = penstockctl(live.data_dir, *line.split())
        assert (line, said.code, said.out, said.err) == (line, code, out, err)
