"""A node's NSQ side, made from its settings."""

import hashlib
import logging
import platform
import random
from collections.abc import Callable

from penstock.broker.broker import Broker
from penstock.core.checksum import crc32
from penstock.protocols.nsq.authority import HttpAuthority
from penstock.protocols.nsq.codec.identify import IdentifyLimits
from penstock.protocols.nsq.codec.ids import NODE_MAX, IdFactory
from penstock.protocols.nsq.codec.reader import ReaderLimits
from penstock.protocols.nsq.layers import SocketLayers
from penstock.protocols.nsq.shared import NsqShared
from penstock.queues.consumers import Consumer
from penstock.queues.scan_loop import ScanLoop
from penstock.settings.settings import Settings
from penstock.tls.options import TlsOptions

logger = logging.getLogger("penstock.nsq")


def make_nsq(
    broker: Broker,
    settings: Settings,
    tell_cancelled: Callable[[list[Consumer]], None],
    tls: TlsOptions | None,
    wake: Callable[[], None],
) -> NsqShared:
    asked = settings.nsq_auth_http_addresses
    shared = NsqShared(
        broker,
        settings,
        ReaderLimits(
            settings.nsq_max_msg_size_bytes,
            settings.nsq_max_body_size_bytes,
            settings.nsq_max_req_timeout_ms,
        ),
        _identify_limits(settings, tls),
        IdFactory(node_id(settings.nsq_node_id)),
        SocketLayers(tls),
        HttpAuthority(asked, wake) if asked else None,
        tell_cancelled,
        lambda: random.randrange(100),  # noqa: S311 - of samples
    )
    _warn(shared, settings)
    return shared


def _warn(shared: NsqShared, settings: Settings) -> None:
    """Clients are only told that they may not; the log says why."""
    if settings.nsq_port == 0:
        return
    broker = shared.broker
    if shared.vhost_name not in broker.vhosts:
        logger.warning("nsq_vhost '%s' does not exist: NSQ clients are refused", shared.vhost_name)
    elif shared.user_name not in broker.users.users and not settings.nsq_auth_required:
        logger.warning("nsq_user '%s' does not exist: NSQ clients are refused", shared.user_name)


def make_scan_loop(settings: Settings) -> ScanLoop | None:
    """None = every deadline is known."""
    if settings.nsq_queue_scan == "exact":
        return None
    return ScanLoop(
        lambda below, count: random.sample(range(below), count),
        settings.nsq_queue_scan_interval_ms,
        settings.nsq_queue_scan_refresh_interval_ms,
        settings.nsq_queue_scan_selection_count,
        settings.nsq_queue_scan_dirty_percent / 100,
        settings.nsq_queue_scan_worker_pool_max,
    )


def _identify_limits(settings: Settings, tls: TlsOptions | None) -> IdentifyLimits:
    return IdentifyLimits(
        max_heartbeat_ms=settings.nsq_max_heartbeat_interval_ms,
        max_ready_count=settings.nsq_max_rdy_count,
        message_timeout_ms=settings.nsq_msg_timeout_ms,
        max_message_timeout_ms=settings.nsq_max_msg_timeout_ms,
        max_output_bytes=settings.nsq_max_output_buffer_size_bytes,
        min_output_ms=settings.nsq_min_output_buffer_timeout_ms,
        max_output_ms=settings.nsq_max_output_buffer_timeout_ms,
        max_deflate_level=settings.nsq_max_deflate_level,
        offers_tls=tls is not None,
        offers_snappy=settings.nsq_snappy and has_snappy(),
        offers_deflate=settings.nsq_deflate,
        auth_required=settings.nsq_auth_required or bool(settings.nsq_auth_http_addresses),
    )


def has_snappy() -> bool:
    """A package that is missing, or cannot be loaded, is no reason to lose connections."""
    try:
        import cramjam  # noqa: F401, PLC0415
    except ImportError:
        logger.warning("the package cramjam cannot be loaded: NSQ clients are not offered snappy")
        return False
    return True


def node_id(configured: int) -> int:
    """Of this machine's name, as nsqd makes it, unless it is said."""
    if configured >= 0:
        return configured
    digest = hashlib.md5(platform.node().encode(), usedforsecurity=False).digest()
    return crc32(digest) % (NODE_MAX + 1)
