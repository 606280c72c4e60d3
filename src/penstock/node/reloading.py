"""SIGHUP: the settings are read again, and what can change at run time changes.

All or nothing: a source that is wrong anywhere leaves everything as it was, and the log says why.
What only counts at a start is named, so that it is not believed to be in force.  Certificates are
read again each time, whether or not their settings changed: that is how renewed ones come in.
"""

import logging
from collections.abc import Callable
from typing import Final

from penstock.broker.broker import Broker
from penstock.broker.rules.access import NO_LIMIT
from penstock.gate import Gate
from penstock.node.inspection.logs import Logs
from penstock.node.machine import total_memory_bytes
from penstock.node.resource_monitor import ResourceMonitor
from penstock.settings.entry import AddressRules, EntrySettings
from penstock.settings.settings import DECLARED, Settings
from penstock.settings.tls import TlsSettings
from penstock.tls.options import TlsSet

OF_TLS: Final = frozenset(
    {*(key for key in DECLARED if key in vars(TlsSettings))}
    | {"cluster_tls_certfile", "cluster_tls_keyfile", "cluster_tls_cacertfile"}
)
LIVE: Final = frozenset(
    {
        *(key for key in DECLARED if key.startswith("log_")),
        "vm_memory_high_watermark",
        "vm_memory_high_watermark_paging_ratio",
        "disk_free_limit",
        "connection_max",
        "consumer_timeout_ms",
        *OF_TLS,
        *(key for key in DECLARED if key in vars(EntrySettings)),
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
        tls: TlsSet,
        logs: Logs,
        gate: Gate,
    ) -> None:
        self._gate = gate
        self._settings = settings
        self._broker = broker
        self._monitor = monitor
        self._tls = tls
        self._logs = logs

    def run(self, reread: Callable[[], Settings]) -> Settings:
        """The settings in force.  Never raises: the node goes on either way."""
        try:
            new = reread()
            tls = TlsSet(new)
            self._logs.apply(new)
        except Exception as error:  # noqa: BLE001 - whatever a file can do to us
            logger.warning("settings were not reloaded, the old ones stay in force: %s", error)
            self._broker.events.note("settings_reloaded", ("", "", str(error)))
            return self._settings
        self._tls.renew(tls)
        changed = self._changed(new)
        self._apply(new)
        self._settings = new
        live = [key for key in changed if key in LIVE and self._is_there(key)]
        late = [key for key in changed if key not in live]
        told = ", ".join(live), ", ".join(late), None
        self._broker.events.note("settings_reloaded", told)
        logger.warning("settings were reloaded; changed: %s", ", ".join(live) or "nothing")
        if late:
            logger.warning("these count from the next start on: %s", ", ".join(late))
        for text in new.warnings:
            logger.warning("%s", text)
        return new

    def _is_there(self, key: str) -> bool:
        """No TLS port is opened on the way."""
        return key not in OF_TLS or any(self._tls.all())

    def _changed(self, new: Settings) -> list[str]:
        old = self._settings
        return [key for key in DECLARED if old.value_of(key) != new.value_of(key)]

    def _apply(self, new: Settings) -> None:
        self._gate.renew(new)
        self._broker.reload(
            new.connection_max or NO_LIMIT,
            new.consumer_timeout_ms,
            new.channel_max_per_node or NO_LIMIT,
            new.plain_text_passwords,
            AddressRules(new.address_rules),
        )
        changed = self._changed(new)
        if any(key.startswith(("vm_memory", "disk_free")) for key in changed):
            self._monitor.set_limits(
                new.total_memory_override_bytes or total_memory_bytes(),
                new.vm_memory_high_watermark,
                new.vm_memory_high_watermark_paging_ratio,
                new.disk_free_limit,
            )
