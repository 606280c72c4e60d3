"""What needs a person: findings about a node, each a sentence with its figure and its page.

In: trends of queues out of the sampler's rings, rows of the data loop, a time.  Out: ``Finding``; a
node that needs no person has none.  Nothing here asks for anything, or knows a clock.

A finding is a statement about the past minutes: the numbers in its sentence are on the page that
it leads to.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple, cast

from penstock.broker.mirrors import DOWN, WAITING, MirrorFacts
from penstock.core.clock_types import WallMs
from penstock.management.facts.rows import Row
from penstock.management.facts.sessions import ListenerFacts, date_text
from penstock.management.rows.forecast_view import in_words
from penstock.management.statistics.kinds import CLUSTER, QUEUE
from penstock.management.statistics.rings import Track, Tracks

WINDOW_S: Final = 300
"""Of queues; shorter than what the finest rings keep."""
GROWN_LEAST: Final = 10
"""Messages in ``WINDOW_S``: below it, a queue does not grow and nothing piles up."""
CHURN_S: Final = 60
OPENED_LEAST: Final = 60
"""Connections in ``CHURN_S``: below it, they do not come and go."""
CERTIFICATE_S: Final = 30 * 86_400
DISK_S: Final = 86_400
MEMORY_S: Final = 3600
HELD_LEAST: Final = 0.5
"""Of flow's window: a publisher that was held for less has its turn with others."""
BEHIND_LEAST: Final = 1000
"""Parcels that a synchronised mirror has not applied."""

ACKED, BURIED, READY, UNACKED = (
    QUEUE.names.index(name)
    for name in ("ack", "dead_lettered", "messages_ready", "messages_unacknowledged")
)
OPENED, CLOSED = map(CLUSTER.names.index, ("connection_created", "connection_closed"))


class Finding(NamedTuple):
    """``page``: segments of the UI's address; ``command``: what shows the same on a terminal.

    ``vhost``: whose users see it; None = only users who may monitor.
    """

    kind: str
    sentence: str
    figure: float
    page: tuple[str, ...]
    command: str
    vhost: str | None = None
    is_alarm: bool = False

    def row(self) -> Row:
        return self._asdict() | {"page": list(self.page)}


class QueueTrend(NamedTuple):
    """Of the last ``WINDOW_S``; ``held``: the fewest that were unacknowledged meanwhile."""

    ready: int
    grown: int
    unacked: int
    unacked_grown: int
    held: int
    acked: int
    buried: int


class QueueNow(NamedTuple):
    """``is_here``: its master is this node, which counts what is acknowledged."""

    consumers: int
    is_here: bool
    is_stream: bool
    expires: bool  # its messages do
    dead_letter_exchange: str | None


# -- queues ----------------------------------------------------------------------------------


def trends(tracks: Tracks) -> dict[tuple[str, str], QueueTrend]:
    """Of the queues that may need a person, by virtual host and name."""
    found = {}
    for key, track in list(tracks.by_key.items()):
        if track.counts[READY] or track.counts[UNACKED] or BURIED in track.columns:
            trend = _trend(tracks, track)
            if trend.grown >= GROWN_LEAST or trend.unacked or trend.buried:
                found[key[0], key[1]] = trend
    return found


def _trend(tracks: Tracks, track: Track) -> QueueTrend:
    ready, unacked, acked, buried = (
        track.recent(tracks.levels, place, WINDOW_S) for place in (READY, UNACKED, ACKED, BURIED)
    )
    grown, unacked_grown = ready[-1] - ready[0], unacked[-1] - unacked[0]
    return QueueTrend(
        ready[-1], grown, unacked[-1], unacked_grown, min(unacked), sum(acked), sum(buried)
    )


def queue_findings(vhost: str, name: str, trend: QueueTrend, now: QueueNow) -> Iterator[Finding]:
    """Messages that expire may wait without a consumer: their queue is a delay, and bounded."""
    is_delay = now.expires and now.consumers == 0
    found = []
    if trend.grown >= GROWN_LEAST and not (now.consumers or now.is_stream or is_delay):
        growth = f"grew by {trend.grown:,} to {some(trend.ready, 'message')}"
        found.append(("no consumer", trend.grown, f"has no consumer and {growth}"))
    if now.is_here and trend.held and not trend.acked:
        held = some(trend.unacked, "delivered message")
        found.append(("unacknowledged", trend.unacked, f"has {held} and got no acknowledgement"))
    elif now.is_here and trend.held and trend.unacked_grown >= max(GROWN_LEAST, trend.unacked / 2):
        before = trend.unacked - trend.unacked_grown
        growth = f"from {before:,} to {trend.unacked:,} unacknowledged messages"
        found.append(("unacknowledged", trend.unacked_grown, f"went {growth}"))
    if trend.buried and not is_delay:
        exchange = now.dead_letter_exchange
        where = f" to the exchange '{exchange}'" if exchange else ""
        moved = some(trend.buried, "message")
        found.append(("dead letters", trend.buried, f"dead-lettered {moved}{where}"))
    where = "" if vhost == "/" else f" in virtual host '{vhost}'"
    option = "" if vhost == "/" else f" --vhost {vhost}"
    for kind, figure, text in found:
        sentence = f"Queue '{name}'{where} {text} in the last {WINDOW_S // 60} minutes."
        page, command = ("queues", vhost, name), f"queue show {name}{option}"
        yield Finding(kind, sentence, figure, page, command, vhost)


def mirror_findings(vhost: str, name: str, facts: MirrorFacts) -> Iterator[Finding]:
    page, command = ("queues", vhost, name), f"queue mirrors {name} --vhost {vhost}"
    shown = f"Queue '{name}'" + ("" if vhost == "/" else f" in virtual host '{vhost}'")
    if facts.state in (DOWN, WAITING):
        text = f"{shown} is down: {facts.why or 'no node has a complete copy of it'}."
        yield Finding("queue down", text, 1, page, command, vhost, is_alarm=True)
    for copy in facts.copies:
        if copy.synced and (copy.behind or 0) < BEHIND_LEAST:
            continue
        text = f"The mirror of {shown.replace('Queue', 'queue')} on {copy.node}"
        if copy.synced:
            text, figure = f"{text} has not applied {copy.behind:,} changes.", copy.behind
        elif copy.sync is not None:
            text += f" has {copy.sync.done:,} of {copy.sync.total:,} messages."
            figure = copy.sync.total - copy.sync.done
        else:
            text, figure = f"{text} is not synchronised.", 1
        yield Finding("mirror behind", text, figure or 0, page, command, vhost)


# -- the node --------------------------------------------------------------------------------


def forecast_findings(row: Mapping[str, object], node: str) -> Iterator[Finding]:
    """``row``: the forecast of memory and disk."""
    for what, far_s in (("memory", MEMORY_S), ("disk", DISK_S)):
        facts = cast(Row, row[what])
        seconds = facts["seconds_to_alarm"]
        if facts["alarm"]:
            text = f"The {what} alarm of {node} is set: publishers wait."
            yield Finding(f"{what} alarm", text, 1, ("forecast",), "status", is_alarm=True)
        elif isinstance(seconds, int) and seconds < far_s:
            text = f"At the current rate the {what} alarm of {node} is set in {in_words(seconds)}."
            yield Finding(f"{what} fills", text, seconds, ("forecast",), "status")


def elsewhere_findings(
    nodes: Sequence[Row], short_of: Mapping[str, Sequence[str]]
) -> list[Finding]:
    """The other nodes of a cluster: alarms, and those that do not run."""
    found = []
    for node in nodes:
        name = str(node["name"])
        if not node["running"]:
            text = f"Node {name} does not run."
            found.append(Finding("node down", text, 1, ("nodes",), "cluster status", is_alarm=True))
        for what in short_of.get(name, ()):
            text = f"The {what} alarm of {name} is set: publishers wait."
            found.append(Finding(f"{what} alarm", text, 1, ("nodes",), "status", is_alarm=True))
    return found


def held_findings(flow: Mapping[str, object]) -> Iterator[Finding]:
    """``flow``: the answer of ``/api/penstock/flow``."""
    held = [
        row
        for row in cast(list[Row], flow["waits"])
        if row["kind"] == "connection" and cast(float, row["share"] or 1) >= HELD_LEAST
    ]
    if held:
        share = held[0]["share"]
        text = f"Publisher {held[0]['name']} waits for {held[0]['waits_for']}"
        if share is not None:
            window = f"{round(100 * cast(float, share))} % of the last {flow['window_s']} s"
            text = f"Publisher {held[0]['name']} waited {window} for {held[0]['waits_for']}"
        text += f": {held[0]['because']}"
        if len(held) > 1:
            text += f"; {some(len(held) - 1, 'other publisher')} waited as well"
        yield Finding("publisher held", f"{text}.", len(held), ("flow",), "flow")


def churn_findings(tracks: Tracks, open_count: int) -> Iterator[Finding]:
    """``tracks``: the cluster's; connections that come and go."""
    for track in tracks.by_key.values():
        opened, closed = (
            sum(track.recent(tracks.levels, at, CHURN_S)[1:]) for at in (OPENED, CLOSED)
        )
        if min(opened, closed) >= max(OPENED_LEAST, open_count):
            text = f"{opened:,} connections were opened and {closed:,} closed in the last minute"
            text += f"; {open_count:,} {'is' if open_count == 1 else 'are'} open."
            yield Finding("connections come and go", text, opened, ("connections",), "connections")


def certificate_findings(listeners: Sequence[ListenerFacts], now_ms: WallMs) -> Iterator[Finding]:
    for one in listeners:
        ends = [end for dates in one.expiry_dates.values() for end in dates]
        if not ends or (left_s := int(min(ends) - now_ms // 1000)) >= CERTIFICATE_S:
            continue
        when = f"ends in {in_words(left_s)}" if left_s > 0 else "has ended"
        text = f"A certificate of the listener {one.protocol} on port {one.port} {when}"
        text += f" ({date_text(min(ends))})."
        yield Finding("certificate ends", text, left_s, ("nodes",), "status", is_alarm=left_s <= 0)


def link_findings(kind: str, rows: Sequence[Row]) -> Iterator[Finding]:
    """``kind``: Shovel or Federation link; ``rows``: those of this node, in RabbitMQ's form.

    A static shovel is in no virtual host.
    """
    for row in rows:
        state = row.get("state", row.get("status"))
        if state not in ("running", "starting"):
            name = row.get("name") or row.get("upstream")
            reason = row.get("reason") or row.get("error")
            vhost = cast(str | None, row.get("vhost"))
            where = "" if vhost is None else f" in virtual host '{vhost}'"
            text = f"{kind} '{name}'{where} is {state}" + (f": {reason}." if reason else ".")
            yield Finding("link down", text, 1, ("links",), "status", vhost)


def some(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
