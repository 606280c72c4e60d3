"""Writes the programs into the pages of docs/tutorials, and the texts that all languages share.

    python tools/gen_tutorials.py            write the pages
    python tools/gen_tutorials.py --check    exit 1 when a page is stale

Below what all pages say of their programs, a section is a heading, text, a link to the program and
the program.  Programs are edited in their files, texts in the page of Python.  A page is readable
wherever Markdown is; a test runs the check.
"""

import re
import sys
from pathlib import Path

TUTORIALS = Path(__file__).resolve().parent.parent / "docs" / "tutorials"
SOURCE = "python"
SHARED = re.compile(r"^Each program is one file .*?(?=^## )", re.MULTILINE | re.DOTALL)
SECTION = re.compile(
    r"^(?P<title>## [^\n]+)\n\n(?P<text>(?:(?!^## ).)*?)"
    r"^(?P<link>\[(?P<file>\w+\.\w+)\]\((?P=file)\):)\n\n```\w+\n.*?^```$",
    re.MULTILINE | re.DOTALL,
)


def page(path: Path, shared: str, texts: dict[str, str]) -> str:
    """With its programs, what all pages say before them, and these texts by title."""

    def section(found: re.Match[str]) -> str:
        program = (path.parent / found["file"]).read_text(encoding="utf-8")
        head = f"{found['title']}\n\n{texts[found['title']]}{found['link']}"
        return f"{head}\n\n```{path.parent.name}\n{program.rstrip()}\n```"

    text = SHARED.sub(lambda _: shared, path.read_text(encoding="utf-8"))
    return SECTION.sub(section, text)


def main(words: list[str]) -> int:
    source = (TUTORIALS / SOURCE / "index.md").read_text(encoding="utf-8")
    [shared] = SHARED.findall(source)
    texts = {found["title"]: found["text"] for found in SECTION.finditer(source)}
    stale = []
    for path in sorted(TUTORIALS.glob("*/index.md")):
        text = page(path, shared, texts)
        if text != path.read_text(encoding="utf-8"):
            stale.append(path.parent.name)
            if "--check" not in words:
                path.write_text(text, encoding="utf-8")
    if stale and "--check" in words:
        print(f"{', '.join(stale)}: run python tools/gen_tutorials.py", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
