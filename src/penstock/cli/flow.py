"""``penstock attention``: what needs a person; ``penstock flow``: who waits for whom, and where the
bottleneck is.

Outside users of the management API, like the commands of inspect.py; the second needs the tag
``monitoring``, and without it the first shows queues and links only.  JSON is what the server said.
"""

from collections.abc import Mapping
from typing import Any, Final

from penstock.cli.management import Management, command
from penstock.cli.tables import say, table
from penstock.core.printable import printable

PATH: Final = "/api/penstock/flow"
ATTENTION: Final = "/api/penstock/attention"
WAITS_SHOWN: Final = 10


@command("attention -o json")
def attention(management: Management, output: str) -> None:
    """Show what needs a person: alarms, queues that grow, held publishers, and others."""
    absent = f"{management.url} does not say what needs a person"
    found = management.must_find(ATTENTION, absent, "findings are shown for Penstock only")
    say(found, output, "" if output == "json" else attention_text(found))


def attention_text(found: Mapping[str, Any]) -> str:
    """A line for each finding, with the command that shows its figure."""
    lines = [
        f"{'alarm' if one['is_alarm'] else 'warning'}: {printable(one['sentence'])}\n"
        f"  look: penstock {printable(one['command'])}"
        for one in found["findings"]
    ]
    if found["left_out"]:
        lines.append(f"and {found['left_out']:,} more of these kinds")
    if not lines and not found["not_judged"]:
        lines.append("nothing needs a person")
    lines += [f"not judged: {text}" for text in found["not_judged"]]
    return "\n".join(lines)


@command("flow -o json")
def flow(management: Management, output: str) -> None:
    """Show flow control: the chain of credit over the last ten seconds, and the bottleneck."""
    absent = f"{management.url} does not say who waits for whom"
    found = management.must_find(PATH, absent, "credit is shown for Penstock only")
    say(found, output, "" if output == "json" else flow_text(found))


def flow_text(found: Mapping[str, Any]) -> str:
    """The page: the chain, the longest waits, the bottleneck."""
    window = f"share of {found['window_s']} s"
    chain = [
        (stage["kind"], stage["in_flow"], _percent(stage["share"])) for stage in found["stages"]
    ]
    parts = [table(("stage", "in flow now", window), chain)]
    waits = found["waits"][:WAITS_SHOWN]
    if waits:
        rows = [
            (wait["name"], wait["waits_for"], wait["because"], _percent(wait["share"]))
            for wait in waits
        ]
        parts.append(table(("who waits", "for", "because", window), rows))
        more = len(found["waits"]) - len(waits)
        if more > 0:
            parts[-1] += f"\nand {more} more: -o json has them"
    processor = found["processor"]
    if any(processor.values()):
        shares = ", ".join(f"{name} {_percent(share)}" for name, share in processor.items())
        parts.append(f"the processor's time for messages: {shares}")
    parts.append(f"{found['sentence']}\n{found['advice']}".rstrip())
    return "\n\n".join(parts)


def _percent(share: float | None) -> str:
    """None: of a publisher that an alarm holds no share is known."""
    return "-" if share is None else f"{round(100 * share)} %"
