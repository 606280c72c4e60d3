"""SIGHUP: the settings are read again, and what can change at run time changes.

All or nothing: a source that is wrong anywhere leaves everything as it was, and the log says why.
What only counts at a start is named, so that it is not believed to be in force.  Certificates are
read again each time, whether or not their settings changed: that is how renewed ones come in.
"""

import logging
import ssl
from collections.abc import Callable
from typing import Final

from penstock.broker.broker import Broker
from penstock.broker.rules.access import NO_LIMIT
from penstock.node.inspection.logs import Logs
from penstock.node.machine import total_memory_bytes
from penstock.node.resource_monitor import ResourceMonitor
from penstock.runtime.secure_socket import TlsOptions, tls_options
from penstock.settings.settings import DECLARED, Settings

LIVE: Final = frozenset(
    {
        *(key for key in DECLARED if key.startswith("log_")),
        "vm_memory_high_watermark",
        "vm_memory_high_watermark_paging_ratio",
        "disk_free_limit",
        "connection_max",
        "consumer_timeout_ms",
        "ssl_certfile",
        "ssl_keyfile",
        "ssl_cacertfile",
        "ssl_verify",
        "ssl_fail_if_no_peer_cert",
    }
)
"""What a running node takes over; TLS for connections that come later."""

logger: Final = logging.getLogger("penstock")


class Reloading:
    """Of one node, on its data loop."""

    def __init__(
        self,
        settings: Settings,
        broker: Broker,
        monitor: ResourceMonitor,
        tls: TlsOptions | None,
        logs: Logs,
    ) -> None:
        self._settings = settings
        self._broker = broker
        self._monitor = monitor
        self._tls = tls
        self._logs = logs
        if tls is not None:
            # Some keep the context they were started with (NSQ's HTTPS): it passes them on.
            tls.context.sni_callback = self._renew

    def run(self, reread: Callable[[], Settings]) -> None:
        """Never raises: the node goes on either way."""
        try:
            new = reread()
            tls = tls_options(new) if self._tls is not None else None
            self._logs.apply(new)
        except Exception as error:  # noqa: BLE001 - whatever a file can do to us
            logger.warning("settings were not reloaded, the old ones stay in force: %s", error)
            return
        if self._tls is not None and tls is not None:
            self._tls.renew(tls)
        changed = self._changed(new)
        self._apply(new)
        self._settings = new
        live = [key for key in changed if key in LIVE and self._is_there(key)]
        late = [key for key in changed if key not in live]
        logger.warning("settings were reloaded; changed: %s", ", ".join(live) or "nothing")
        if late:
            logger.warning("these count from the next start on: %s", ", ".join(late))
        for text in new.warnings:
            logger.warning("%s", text)

    def _renew(
        self, client: ssl.SSLSocket | ssl.SSLObject, _name: str | None, _first: ssl.SSLContext
    ) -> None:
        """A client shakes hands: with the certificate that is in force now."""
        assert self._tls is not None
        client.context = self._tls.context

    def _is_there(self, key: str) -> bool:
        """No TLS port is opened on the way."""
        return self._tls is not None or not key.startswith("ssl_")

    def _changed(self, new: Settings) -> list[str]:
        old = self._settings
        return [key for key in DECLARED if old.value_of(key) != new.value_of(key)]

    def _apply(self, new: Settings) -> None:
        self._broker.reload(new.connection_max or NO_LIMIT, new.consumer_timeout_ms)
        changed = self._changed(new)
        if any(key.startswith(("vm_memory", "disk_free")) for key in changed):
            self._monitor.set_limits(
                new.total_memory_override_bytes or total_memory_bytes(),
                new.vm_memory_high_watermark,
                new.vm_memory_high_watermark_paging_ratio,
                new.disk_free_limit,
            )
