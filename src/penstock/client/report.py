"""Adds the results of a run's processes up to one JSON object, and words it for people."""

from typing import Any, Final

from penstock.client.plan import LoadPlan
from penstock.core.counting.histogram import Histogram

PERCENTILES: Final = (("p50", 0.50), ("p75", 0.75), ("p95", 0.95), ("p99", 0.99), ("p99.9", 0.999))
Result = dict[str, Any]


def add_up(plan: LoadPlan, results: list[tuple[str, Result]], begin: Result, end: Result) -> Result:
    """``begin`` and ``end`` are the snapshots between which the run was measured.

    Totals (``published`` …) are of the whole run; rates and CPU of the measured time.  A
    counted run is measured from its first message to its last confirm and its last delivery,
    however late the observing thread is woken.
    """
    publishers = [result for role, result in results if role == "publisher"]
    consumers = [result for role, result in results if role == "consumer"]
    measured_s = (end["at_ns"] - begin["at_ns"]) / 1e9
    publish_s = consume_s = measured_s
    if plan.count:
        first_ns = first_message_ns(publishers + consumers)
        publish_s = span_s(first_ns, publishers)
        consume_s = span_s(first_ns, consumers)
    published = end["published"] - begin["published"]
    consumed = end["consumed"] - begin["consumed"]
    return {
        "plan": shown_plan(plan),
        "measured_s": measured_s,
        "published": total(publishers, "published"),
        "confirmed": total(publishers, "confirmed"),
        "nacked": total(publishers, "nacked"),
        "consumed": total(consumers, "consumed"),
        "redelivered": total(consumers, "redelivered"),
        "out_of_order": total(consumers, "out_of_order"),
        "foreign": total(consumers, "foreign"),
        "publish_rate": rate(published, publish_s),
        "consume_rate": rate(consumed, consume_s),
        "consume_mb_per_s": megabytes_per_s(consumers, rate(consumed, consume_s)),
        "blocked_s": total(publishers, "blocked_s"),
        "latency_us": percentiles(consumers),
        "confirm_latency_us": percentiles(publishers),
        "broker": broker_cost(begin, end, max(published, consumed)),
        "generator_cpu_s": total(publishers, "cpu_s") + total(consumers, "cpu_s"),
    }


def shown_plan(plan: LoadPlan) -> Result:
    fields: Result = {name: getattr(plan, name) for name in LoadPlan.__dataclass_fields__}
    fields["uri"] = plan.uri.rpartition("@")[2]
    return fields


def total(results: list[Result], name: str) -> Any:
    return sum(result.get(name, 0) for result in results)


def first_message_ns(results: list[Result]) -> int:
    return min((result["first_ns"] for result in results if result.get("first_ns")), default=0)


def span_s(begin_ns: int, results: list[Result]) -> float:
    last_ns = max((result.get("last_ns", 0) for result in results), default=0)
    return max(0.0, (last_ns - begin_ns) / 1e9)


def rate(count: int, seconds: float) -> float:
    return count / seconds if seconds > 0 else 0.0


def megabytes_per_s(consumers: list[Result], messages_per_s: float) -> float:
    """Body bytes: the mean size of the whole run times the measured rate."""
    messages = total(consumers, "consumed")
    if not messages:
        return 0.0
    return float(total(consumers, "body_bytes") / messages * messages_per_s / 1e6)


def percentiles(results: list[Result]) -> Result | None:
    """Microseconds; None when nothing was timed."""
    merged = Histogram()
    for result in results:
        packed = result.get("latency")
        if packed:
            merged.merge(packed["buckets"], packed["sum_ns"], packed["max_ns"])
    if merged.count == 0:
        return None
    found: Result = {"count": int(merged.count), "mean": round(merged.mean() / 1e3, 1)}
    for name, fraction in PERCENTILES:
        found[name] = round(merged.percentile(fraction) / 1e3, 1)
    found["max"] = round(int(merged.greatest) / 1e3, 1)
    return found


def broker_cost(begin: Result, end: Result, messages: int) -> Result:
    """CPU of the watched process; empty when none was watched."""
    user_s = end["cpu_user_s"] - begin["cpu_user_s"]
    system_s = end["cpu_system_s"] - begin["cpu_system_s"]
    if end["cpu_user_s"] + end["cpu_system_s"] == 0:
        return {}
    cpu_s = user_s + system_s
    return {
        "cpu_user_s": round(user_s, 2),
        "cpu_system_s": round(system_s, 2),
        "cpu_cores": cpu_s / ((end["at_ns"] - begin["at_ns"]) / 1e9),
        "cpu_us_per_message": cpu_s * 1e6 / messages if messages else None,
    }


# -- for people ----------------------------------------------------------------------------


def lines(result: Result) -> list[str]:
    shown = [
        f"measured    {result['measured_s']:.2f} s",
        f"published   {result['published']:>12,}  {result['publish_rate']:>12,.0f} msg/s",
        (
            f"consumed    {result['consumed']:>12,}  {result['consume_rate']:>12,.0f} msg/s"
            f"  {result['consume_mb_per_s']:,.1f} MB/s"
        ),
    ]
    if result["plan"]["confirm"]:
        nacked = f"  nacked {result['nacked']:,}" if result["nacked"] else ""
        shown.append(f"confirmed   {result['confirmed']:>12,}{nacked}")
    shown += latency_lines(result)
    broker = result["broker"]
    if broker:
        per_message = broker["cpu_us_per_message"]
        cost = f"  {per_message:.2f} us per message" if per_message is not None else ""
        shown += [
            (
                f"broker CPU  user {broker['cpu_user_s']} s  system {broker['cpu_system_s']} s"
                f"  {broker['cpu_cores']:.2f} cores{cost}"
            ),
            (
                f"broker RSS  {broker['rss_start_mb']:.1f} MB at start"
                f"  {broker['rss_peak_mb']:.1f} MB at peak"
            ),
        ]
    return shown + warnings(result)


def latency_lines(result: Result) -> list[str]:
    shown = []
    for name, title in (("latency_us", "latency"), ("confirm_latency_us", "confirm")):
        found = result[name]
        if found:
            columns = [label for label, _ in PERCENTILES] + ["max"]
            values = "  ".join(f"{label} {found[label] / 1e3:.3f}" for label in columns)
            shown.append(f"{title:<11} {values}  (ms)")
    return shown


def warnings(result: Result) -> list[str]:
    """What a reader of the numbers above must know."""
    notes = []
    for name, meaning in (
        ("redelivered", "deliveries were marked as redelivered"),
        ("out_of_order", "deliveries came out of order"),
        ("foreign", "messages were not of this run: the queue was not empty"),
        ("nacked", "messages were refused by the broker"),
    ):
        if result[name]:
            notes.append(f"warning: {result[name]:,} {meaning}")
    if result["blocked_s"] > 0:
        notes.append(f"warning: the broker blocked publishers for {result['blocked_s']:.1f} s")
    if result["deadline_passed"]:
        notes.append("warning: the deadline broke the run off; it is not complete")
    return notes
