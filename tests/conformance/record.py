"""Run the cases against a broker and keep the transcripts as files.

    python -m tests.conformance.record --url amqp://guest:guest@127.0.0.1:5672 \\
        --out tests/conformance/recorded/rabbitmq-3.10.8

One file per subject, one list of lines per case.  Needs a broker nobody else uses, with its
default settings.  Records every case twice and refuses to write one that told two stories.
"""

import argparse
import json
import sys
from pathlib import Path

from tests.conformance.runner import Outcome, load_cases, run_cases


def write(outcomes: dict[str, Outcome], directory: Path) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    subjects: dict[str, dict[str, list[str]]] = {}
    for name, outcome in sorted(outcomes.items()):
        subjects.setdefault(name.split(".")[0], {})[name.split(".")[1]] = outcome.lines
    for subject, cases in subjects.items():
        text = json.dumps(cases, indent=1, ensure_ascii=True) + "\n"
        (directory / f"{subject}.json").write_text(text)


def read(directory: Path) -> dict[str, list[str]]:
    """Case name to recorded lines."""
    return {
        f"{path.stem}.{name}": lines
        for path in sorted(directory.glob("*.json"))
        for name, lines in json.loads(path.read_text()).items()
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--url", required=True)
    parser.add_argument("--out", required=True, type=Path)
    parser.add_argument("--subject", default="", help="this one only")
    options = parser.parse_args()
    names = [name for name in load_cases() if name.startswith(options.subject)]
    first, second = run_cases(options.url, names), run_cases(options.url, names)
    bad = 0
    for name in names:
        one, two = first[name], second[name]
        if one.error or two.error:
            print(f"{name} failed:\n{one.error or two.error}")
        elif one.lines != two.lines:
            different = [
                pair for pair in zip(one.lines, two.lines, strict=False) if pair[0] != pair[1]
            ]
            print(f"{name} told two stories, first difference: {different[:1]}")
        else:
            continue
        bad += 1
    if bad:
        return 1
    write(first, options.out)
    print(f"{len(names)} cases recorded in {options.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
