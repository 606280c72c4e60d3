"""``BrokerOptions``: what the settings of a node say of its broker."""

from typing import NamedTuple

from penstock.broker.rules.access import NO_LIMIT
from penstock.broker.rules.arguments import TypeRules
from penstock.broker.rules.flow import Flow
from penstock.broker.rules.lockouts import NO_LOCKOUT, LockoutRule
from penstock.broker.rules.passwords import Passwords
from penstock.broker.rules.vhost_defaults import VhostDefaults
from penstock.broker.transfers.staging import StagingLimits
from penstock.core.counting.spans import SpanBook
from penstock.core.credit import CreditSpec
from penstock.queues.latency import PublishTime, enqueue_time
from penstock.queues.sampling import PublishTimes, no_times
from penstock.queues.scan_loop import ScanLoop
from penstock.settings.entry import AddressRules


class BrokerOptions(NamedTuple):
    """``flow``, ``scan``, ``passwords`` and ``spans`` have state: they are of one broker."""

    flow: Flow
    node_name: str = ""
    connection_max: int = int(NO_LIMIT)
    consumer_timeout_ms: int = 0
    """Of unsettled deliveries; 0 = none."""
    stamping: int = 0
    """``UNSTAMPED``, ``KEEP`` or ``OVERWRITE``, see ``broker.broker``."""
    latency_targets: tuple[float, ...] = ()
    """Quantiles of the channels of topics; none = not measured."""
    latency_window_ms: int = 0
    publish_time: PublishTime = enqueue_time
    publish_times: PublishTimes = no_times
    scan: ScanLoop | None = None
    """None: the schedule knows the deadlines of deliveries."""
    staging: StagingLimits = StagingLimits()
    cluster_name: str = ""
    """By the settings; "" = the node's."""
    types: TypeRules = TypeRules()
    vhost_defaults: VhostDefaults = VhostDefaults()
    channel_max: int = int(NO_LIMIT)
    """Of the node."""
    plain_text_passwords: bool = True
    address_rules: AddressRules = AddressRules(())
    passwords: Passwords | None = None
    """None: any password, hashed as RabbitMQ does it."""
    lockouts: LockoutRule = NO_LOCKOUT
    spans: SpanBook | None = None
    """None: there is no export of traces."""


def default_options() -> BrokerOptions:
    return BrokerOptions(Flow(CreditSpec(400, 200), CreditSpec(4000, 800)))
