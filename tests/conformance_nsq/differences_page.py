"""The part of docs/differences.md that is about NSQ, from the list of differences.

``tests/conformance/differences_page.py`` writes the page and checks it.  What the tools of NSQ did
with this broker was seen by hand; its table is kept here, beside the day.
"""

from __future__ import annotations

import difflib
from typing import Final, NamedTuple

from tests.conformance_nsq.differences import DIFFERENCES, RECORDED_ON, Change
from tests.conformance_nsq.record import read

HEAD: Final = """
# Differences from nsqd

<!-- From tests/conformance_nsq/differences.py and differences_page.py: edit there. -->

The decisions of [NSQ on Penstock](nsq.md) are not repeated here. {count} conversations
with nsqd and nsqlookupd 1.3.0, over raw sockets and HTTP, are recorded in
`tests/conformance_nsq/recorded`: every command, error and bound. They were last compared with nsqd
on {day}, and were what it says; Penstock is asked the same by each run of the tests. These are
all the lines that differ: those with a minus are nsqd's, those with a plus Penstock's. With an
nsqd at hand, the first command checks the record, and the second records anew:

```
PENSTOCK_TEST_NSQD=PATH pytest tests/conformance_nsq
python -m tests.conformance_nsq.record PATH
```
"""


class Tool(NamedTuple):
    name: str
    tried: str
    found: str


TOOLS_DAY: Final = "2026-11-21"
TOOLS: Final = (
    Tool("to_nsq", "lines of standard input, 5,000 at full rate", "all there"),
    Tool(
        "nsq_tail",
        "by nsqlookupd and by address, `-n`, `--print-topic`",
        "shows what is published; as with nsqd the last of `-n` messages is not finished and "
        "waits for its timeout",
    ),
    Tool(
        "nsq_to_file",
        "5,000 messages by nsqlookupd; 3,000 with `--gzip` by address; ended by SIGTERM",
        "each line once; the channel is empty afterwards",
    ),
    Tool("nsq_stat", "by nsqlookupd and by address", "the same columns; memory and disk as told"),
    Tool("nsq_to_nsq", "from one topic to another", "copied"),
    Tool("nsq_to_http", "to a small server, by POST", "each message came once"),
    Tool(
        "nsqadmin",
        "every page's request, and create, pause, unpause, empty, delete of topic and channel, "
        "tombstone of a node; the same beside nsqd and nsqlookupd",
        "23 requests, answered the same but for ports",
    ),
)

TOOLS_HEAD: Final = """
## NSQ's own tools

Those of release 1.3.0, unmodified, run by hand against this broker and its nsqlookupd on {day}:

| tool | tried | found |
|---|---|---|
"""


def _changed(change: Change) -> list[str]:
    """As a piece of a diff."""
    lines = difflib.unified_diff(change.theirs, change.ours, n=len(change.theirs), lineterm="")
    return [f"@@ {change.case}", *list(lines)[3:]]


def section() -> str:
    parts = [HEAD.format(count=len(read()), day=RECORDED_ON)]
    for difference in DIFFERENCES:
        lines = [line for change in difference.changes for line in _changed(change)]
        shown = "\n".join(line.rstrip() for line in lines)
        parts.append(f"\n{difference.reason}\n\n```diff\n{shown}\n```\n")
    parts.append(TOOLS_HEAD.format(day=TOOLS_DAY))
    parts.extend(f"| {tool.name} | {tool.tried} | {tool.found} |\n" for tool in TOOLS)
    return "".join(parts)
