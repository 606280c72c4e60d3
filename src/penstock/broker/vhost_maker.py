"""``VhostMaker``: a virtual host, with all that it shares with the others of its node."""

from typing import Final, final

from mypy_extensions import i64

from penstock.broker.options import BrokerOptions
from penstock.broker.topology.binding_reaper import BindingReaper
from penstock.broker.topology.changes import Changes
from penstock.broker.topology.histories import Histories
from penstock.broker.topology.idleness import Idleness
from penstock.broker.topology.queue_maker import BackingFactory, IncarnationSource, QueueMaker
from penstock.broker.topology.vhost import Vhost
from penstock.core.counting.traffic import Churn
from penstock.core.letters import HeaderWriter
from penstock.queues.context import QueueContext
from penstock.storage.definitions.definitions import Definitions
from penstock.storage.engine.engine import Engine


@final
class VhostMaker:
    """Of one node.  ``sweep`` and ``histories`` are parts of its turn."""

    def __init__(
        self,
        definitions: Definitions,
        engine: Engine,
        make_backing: BackingFactory,
        new_incarnation: IncarnationSource,
        context: QueueContext,
        idleness: Idleness,
        churn: Churn,
        letter_writer: HeaderWriter,
        options: BrokerOptions,
    ) -> None:
        self.sweep: Final = BindingReaper(definitions)
        self.histories: Final = Histories(context.sampling.book, letter_writer)
        self._definitions: Final = definitions
        self._engine: Final = engine
        self._make_backing: Final = make_backing
        self._new_incarnation: Final = new_incarnation
        self._context: Final = context
        self._idleness: Final = idleness
        self._churn: Final = churn
        self._options: Final = options
        self._epochs_used: i64 = 0  # by virtual hosts that are gone

    def make(self, name: str, segment_entries: int, changes: Changes) -> Vhost:
        """``segment_entries``: of its queues' index, the same as long as it has data."""
        options = self._options
        vhost = Vhost(
            name,
            segment_entries,
            self._definitions,
            self._engine,
            QueueMaker(name, segment_entries, self._make_backing, self._context),
            self._new_incarnation,
            self._idleness,
            self.sweep,
            options.scan is not None,
            self._epochs_used,
            self._churn,
            changes,
            self._context.waits,
            options.types,
            self.histories,
        )
        vhost.topics.measure(
            list(options.latency_targets), options.latency_window_ms, options.publish_time
        )
        return vhost

    def forget(self, vhost: Vhost) -> None:
        """It is gone: addresses may remember routes of its epochs, so no other uses them."""
        self._epochs_used = max(self._epochs_used, vhost.epoch + 1)
