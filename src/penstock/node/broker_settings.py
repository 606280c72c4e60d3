"""Options of the broker and limits of its engine, made from the settings."""

from penstock.broker.options import BrokerOptions
from penstock.broker.rules.access import NO_LIMIT
from penstock.broker.rules.alarms import NO_PAGING
from penstock.broker.rules.arguments import TypeRules
from penstock.broker.rules.flow import Flow
from penstock.broker.rules.lockouts import LockoutRule
from penstock.broker.rules.passwords import Run
from penstock.broker.rules.vhost_defaults import VhostDefaults
from penstock.broker.transfers.staging import StagingLimits
from penstock.core.credit import CreditSpec
from penstock.core.errors import SettingInvalid
from penstock.node.boot_definitions import new_salt
from penstock.node.inspection.span_export import span_book
from penstock.node.password_worker import passwords_of
from penstock.protocols.amqp.stamping import STAMPINGS
from penstock.protocols.nsq.codec.contents import publish_time_ms
from penstock.protocols.nsq.settings import make_scan_loop
from penstock.protocols.ranges.codec.publish_times import publish_times
from penstock.queues.context import CLASSIC
from penstock.secrets.sources import secret_of
from penstock.settings.entry import AddressRules
from penstock.settings.settings import NEWER, Settings
from penstock.storage.engine.engine import EngineLimits


def type_rules(settings: Settings) -> TypeRules:
    newer = settings.compatibility == NEWER
    return TypeRules(
        settings.default_queue_type or (CLASSIC if newer else ""),
        settings.quorum_relaxed_checks_on_redeclaration,
        newer,
    )


def broker_options(settings: Settings, node_name: str, run: Run) -> BrokerOptions:
    """``run``: slow work on passwords, in a worker thread."""
    return BrokerOptions(
        make_flow(settings),
        node_name,
        settings.connection_max or NO_LIMIT,
        settings.consumer_timeout_ms,
        STAMPINGS.index(settings.message_timestamp),
        tuple(settings.nsq_e2e_processing_latency_percentiles),
        settings.nsq_e2e_processing_latency_window_time_s * 1000,
        publish_time_ms,
        publish_times,
        make_scan_loop(settings),
        StagingLimits(
            settings.staged_set_ttl_s * 1000,
            settings.staged_producer_ttl_s * 1000,
            settings.max_message_size_bytes,
        ),
        settings.cluster_name if settings.cluster_etcd_endpoints else "",
        type_rules(settings),
        VhostDefaults(secret_of(settings, "vhost_defaults"), new_salt),
        settings.channel_max_per_node or NO_LIMIT,
        settings.plain_text_passwords,
        AddressRules(settings.address_rules),
        passwords_of(settings, run),
        LockoutRule(
            settings.login_lockout,
            settings.login_lockout_failures,
            settings.login_lockout_window_s * 1000,
            settings.login_lockout_s * 1000,
        ),
        span_book(settings),
    )


def engine_limits(settings: Settings, memory: int) -> EngineLimits:
    """``memory``: of the whole process; the alarms take off what is not for messages."""
    ratio = settings.vm_memory_high_watermark_paging_ratio
    return EngineLimits(
        settings.queue_index_embed_msgs_below_bytes,
        settings.journal_size_limit_bytes,
        settings.queue_index_max_journal_entries,
        memory,
        int(NO_PAGING) if ratio > 1 else int(memory * ratio),
    )


def make_flow(settings: Settings) -> Flow:
    """Raises SettingInvalid where more would be granted than there may be."""
    return Flow(
        _spec("credit_flow", settings.credit_flow_initial, settings.credit_flow_more_after)
        if settings.credit_flow_initial > 0
        else None,
        _spec(
            "msg_store_credit",
            settings.msg_store_credit_initial,
            settings.msg_store_credit_more_after,
        ),
    )


def _spec(name: str, initial: int, more_after: int) -> CreditSpec:
    if more_after > initial:
        raise SettingInvalid(
            f"{name}_more_after = {more_after} is above {name}_initial = {initial}:"
            " a sender without credit would wait for ever"
        )
    return CreditSpec(initial, more_after)
