"""Run the cases against the real nsqd and keep the transcripts as files.

    python -m tests.conformance_nsq.record NSQD [--out DIR] [--only SUBJECT]

NSQD is the path of an nsqd 1.3.0; nsqlookupd is taken from the same directory.  One file per
subject, one list of lines per case.  Every case is recorded twice, and one that told two stories
is not written.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from tests.conformance_nsq.runner import Outcome, load_cases, run_cases
from tests.conformance_nsq.servers import Nsqd

RECORDED = Path(__file__).parent / "recorded" / "nsqd-1.3.0"


def write(outcomes: dict[str, Outcome], directory: Path) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    subjects: dict[str, dict[str, list[str]]] = {}
    for name, outcome in sorted(outcomes.items()):
        subjects.setdefault(name.split(".")[0], {})[name.split(".")[1]] = outcome.lines
    for subject, cases in subjects.items():
        text = json.dumps(cases, indent=1, ensure_ascii=True) + "\n"
        (directory / f"{subject}.json").write_text(text)


def read(directory: Path = RECORDED) -> dict[str, list[str]]:
    """Case name to recorded lines."""
    return {
        f"{path.stem}.{name}": lines
        for path in sorted(directory.glob("*.json"))
        for name, lines in json.loads(path.read_text()).items()
    }


def two_stories(one: Outcome, two: Outcome) -> str:
    """What keeps a case from being recorded."""
    if one.error or two.error:
        return one.error or two.error
    if one.lines == two.lines:
        return ""
    pairs = zip([*one.lines, "(end)"], [*two.lines, "(end)"], strict=False)
    return f"told two stories, first difference: {next(p for p in pairs if p[0] != p[1])}"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("nsqd", type=Path)
    parser.add_argument("--out", type=Path, default=RECORDED)
    parser.add_argument("--only", default="", help="subjects, with commas")
    options = parser.parse_args()
    wanted = set(options.only.split(",")) if options.only else None
    names = [name for name in load_cases() if not wanted or name.split(".")[0] in wanted]
    family = Nsqd(options.nsqd)
    first, second = run_cases(family, names), run_cases(family, names)
    bad = {name: why for name in names if (why := two_stories(first[name], second[name]))}
    for name, why in bad.items():
        print(f"{name}: {why}")
    if bad:
        return 1
    write(first, options.out)
    print(f"{len(names)} cases recorded in {options.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
