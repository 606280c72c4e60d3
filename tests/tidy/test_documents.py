"""Numbers and lists in documents are those of the program and of its tests."""

from __future__ import annotations

import ast
import configparser
import fnmatch
import json
import re
import runpy
import shutil
import subprocess
from pathlib import Path

import hypothesis
import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
CONTRIBUTING = (REPOSITORY / "CONTRIBUTING.md").read_text(encoding="utf-8")
ARCHITECTURE = (REPOSITORY / "ARCHITECTURE.md").read_text(encoding="utf-8")
ROUNDED_BY = 0.05
"""How far a number in a document may be from what it counts."""


def recorded(folder: str) -> int:
    """How many conversations are recorded below ``folder``, from one broker or more."""
    files = (REPOSITORY / "tests" / folder / "recorded").glob("*-*/*.json")
    cases = {(file.stem, name) for file in files for name in json.loads(file.read_text("utf-8"))}
    return len(cases)


@pytest.mark.parametrize(
    "document, words, folder",
    [
        ("docs/features.md", r"[Ss]ome (\d+) recorded conversations", "conformance"),
        ("docs/conformance.md", r"hold some (\d+) conversations", "conformance"),
        (
            "docs/features.md",
            r"(\d+) recorded conversations are held against nsqd",
            "conformance_nsq",
        ),
    ],
)
def test_the_number_of_conversations(document: str, words: str, folder: str) -> None:
    """B49 of the review."""
    found = re.findall(words, (REPOSITORY / document).read_text(encoding="utf-8"))
    assert [int(number) for number in found] == [pytest.approx(recorded(folder), rel=ROUNDED_BY)]


def test_the_number_of_examples_of_each_profile() -> None:
    """B58 of the review."""
    told = re.findall(r"`(quick|guard|dev|nightly)` ([\d,]*\d)", CONTRIBUTING)
    assert {name: int(number.replace(",", "")) for name, number in told} == {
        name: hypothesis.settings.get_profile(name).max_examples
        for name in ("quick", "guard", "dev", "nightly")
    }


def contract(name: str) -> configparser.SectionProxy:
    contracts = configparser.ConfigParser()
    contracts.read(REPOSITORY / ".importlinter")
    return contracts[f"importlinter:contract:{name}"]


def layers(name: str) -> list[set[str]]:
    """Of a contract, top first."""
    return [{*line.split(" | ")} for line in contract(name)["layers"].strip().splitlines()]


def test_the_quiet_packages_are_those_of_the_contract() -> None:
    """B59 of the review."""
    packages = contract("quiet")["source_modules"].split()
    codecs = {package for package in packages if package.endswith(".codec")}
    for document, words in (
        (CONTRIBUTING, r"quiet ones \("),
        (ARCHITECTURE, r"\*\*Quiet packages\*\* \("),
    ):
        (told,) = re.findall(words + r"`([a-z\s]+)`, and the codecs", document)
        assert {f"penstock.{name}" for name in told.split()} == set(packages) - codecs


def imports(package: str) -> set[str]:
    """Of packages of ours; ``codecs``: of ``protocols`` no more than its codecs."""
    path = REPOSITORY / "src/penstock" / package
    files = [*path.rglob("*.py")] or [path.with_suffix(".py")]
    found: set[str] = set()
    for file in files:
        tree = ast.parse(file.read_text(encoding="utf-8"))
        branches = [one for one in ast.walk(tree) if isinstance(one, ast.If)]
        typing = [one for one in branches if ast.unparse(one.test) == "TYPE_CHECKING"]
        skipped = {id(node) for branch in typing for node in ast.walk(branch)}
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module and id(node) not in skipped:
                first, _, rest = node.module.partition(".")
                name = rest.partition(".")[0] if first == "penstock" else first
                found.add("codecs" if name == "protocols" and ".codec" in rest else name)
    return found - {package, "codecs" if package == "protocols" else package}


def test_each_package_imports_what_the_table_says() -> None:
    """Named one by one, or by "A, B and below": the layers below theirs as well."""
    table = ARCHITECTURE.split("## The packages")[1].split("\n\n")[1]
    rows = re.findall(r"^\| `(\w+)` \| .* \| ([^|]+) \|$", table, re.MULTILINE)
    order = layers("packages")
    place = {name: at for at, layer in enumerate(order) for name in layer}
    assert {name for name, _ in rows} == place.keys() | {"penstock_ranges"}
    ours = {*place, "codecs", "penstock_ranges", "pyspark_penstock"}
    wrong = {}
    for package, text in rows:
        told = set(re.findall(r"\w+", text)) & ours
        if " below" in text:
            lowest = max([place[name] for name in told if name in place] or [place[package]])
            told |= {name for name, at in place.items() if at > lowest}
        told |= {"codecs"} if "protocols" in told else set()
        if not text.startswith("everything") and package in place:
            wrong[package] = imports(package) & ours - told
    assert {package: names for package, names in wrong.items() if names} == {}


def test_the_packages_inside_are_those_of_the_contracts() -> None:
    table = ARCHITECTURE.split("| package | inside |")[1].split("\n\n")[0]
    rows = re.findall(r"^\| `(\w+)` \| (.+) \|$", table, re.MULTILINE)
    assert len(rows) == 8
    for package, text in rows:
        told = [set(re.findall(r"`(\w+)`", layer)) for layer in text.split(" · ")]
        assert told == layers(package), package


def test_the_files_in_the_lists_of_how_to_add_something_exist() -> None:
    lists = CONTRIBUTING.split("## How to add")[1].split("\n## ")[0]
    told = re.findall(r"`(?:python )?([a-z_.]+/[\w./-]*)`", lists)
    assert len(told) > 40
    roots = (REPOSITORY / "src/penstock", REPOSITORY)
    gone = [path for path in told if not any((root / path).exists() for root in roots)]
    assert [path for path in gone if "NAME" not in path] == []


def test_the_files_that_the_map_and_its_walks_name_exist() -> None:
    """Below ``src/penstock``, ``src`` or the repository; walks name modules without ``.py``."""
    pattern = r"(?<![\w./<{=-])([a-z_]+(?:/[a-z_]+)+(?:\.py|\.md|\.ini)?)(?![\w/<-])"
    told = set(re.findall(pattern, ARCHITECTURE))
    assert len(told) > 90
    roots = (REPOSITORY / "src/penstock", REPOSITORY / "src", REPOSITORY)
    there = {
        name
        for name in told
        if any((root / name).exists() or (root / f"{name}.py").exists() for root in roots)
    }
    assert told - there == set()


def git(*words: str) -> str:
    """What it prints; skips where there is no git or no clone."""
    program = shutil.which("git")
    if program is None:
        pytest.skip("git is not installed (Debian: apt-get install git)")
    done = subprocess.run(
        [program, *words], cwd=REPOSITORY, check=False, capture_output=True, text=True
    )
    if done.returncode != 0:
        pytest.skip("no clone: git knows no files here")
    return done.stdout


def test_no_file_of_the_repository_is_empty() -> None:
    """An empty file was left there by a tool (B82 of the review)."""
    files = [REPOSITORY / name for name in git("ls-files", "-z").split("\0") if name]
    assert [str(file) for file in files if file.is_file() and file.stat().st_size == 0] == []


def test_commit_subjects_begin_with_an_area() -> None:
    """W5 of the review; of the last commits, or of those that a shallow clone has."""
    subjects = git("log", "--no-merges", "-n", "20", "--format=%s").splitlines()
    wrong = [one for one in subjects if not re.match(r"(Revert \"|[a-z][\w, ./+-]*: \S)", one)]
    assert wrong + [one for one in subjects if len(one) > 72] == []


def test_documents_name_the_actors() -> None:
    """The subject of a sentence is a noun of docs/glossary.md, in pages that are generated too."""
    pages = [*REPOSITORY.glob("*.md"), *(REPOSITORY / "docs").rglob("*.md")]
    pattern = re.compile(r"\b(whoever|somebody|nobody)\b", re.IGNORECASE)
    found = [
        f"{page.relative_to(REPOSITORY)}: {line}"
        for page in pages
        if page.name != "CHANGELOG.md"
        for line in page.read_text(encoding="utf-8").splitlines()
        if pattern.search(line) and "name no actor" not in line
    ]
    assert found == []


def anchors(page: Path) -> set[str]:
    """As GitHub derives them from headings."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    plain = [re.sub(r"[^\w\- ]", "", heading) for heading in headings]
    return {heading.strip().lower().replace(" ", "-") for heading in plain}


def test_links_of_documents_lead_somewhere() -> None:
    """On the site, too, which has no README (``make docs`` checks that as well)."""
    pages = [*REPOSITORY.glob("*.md"), *(REPOSITORY / "docs").rglob("*.md")]
    broken = []
    for page in pages:
        for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
            if re.match(r"\w+:", link):
                continue
            path, _, anchor = link.partition("#")
            target = (page.parent / path).resolve() if path else page
            is_there = target.exists() and target != REPOSITORY / "README.md"
            if not is_there or (anchor and anchor not in anchors(target)):
                broken.append(f"{page.relative_to(REPOSITORY)}: {link}")
    assert broken == []


def test_tutorials_have_their_programs_and_shared_texts() -> None:
    """No page includes another file: a reader of the repository would see the directive alone."""
    tool = runpy.run_path(str(REPOSITORY / "tools" / "gen_tutorials.py"))
    assert tool["main"](["--check"]) == 0, "run python tools/gen_tutorials.py"
    for page in (REPOSITORY / "docs").rglob("*.md"):
        text = page.read_text(encoding="utf-8")
        assert re.search(r"^```{(literal)?include}", text, re.MULTILINE) is None, page


def test_each_page_is_in_a_table_of_contents() -> None:
    """Of the site (``make docs``, which checks links as well); the README stands before it."""
    pages = [*REPOSITORY.glob("*.md"), *(REPOSITORY / "docs").rglob("*.md")]
    pages += (REPOSITORY / "benchmarks").glob("**/*.md")
    listed = {"README", "docs/index"}
    for page in pages:
        text = page.read_text(encoding="utf-8")
        for tree in re.findall(r"^```{toctree}\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
            for line in re.findall(r"^[^:\n].*$", tree, re.MULTILINE):
                path = (page.parent / line).resolve()
                listed.add(path.relative_to(REPOSITORY).as_posix())
    names = [page.relative_to(REPOSITORY).with_suffix("").as_posix() for page in pages]
    assert [
        name for name in names if not any(fnmatch.fnmatch(name, entry) for entry in listed)
    ] == []
