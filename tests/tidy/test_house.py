"""Style as tests: what may not creep in unseen; ``test_shape.py`` has what is counted."""

from __future__ import annotations

import ast
import filecmp
import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import penstock

REPOSITORY = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPOSITORY / "tools"))

import native  # noqa: E402

SOURCES = sorted((REPOSITORY / "src").rglob("*.py"))
SOURCES_ROOT = REPOSITORY / "src" / "penstock"
QUIET = ("core", "routing", "queues", "backing", "streams", "storage", "broker", "cluster")
# Words of the compiler: a quiet file that uses them is meant to be compiled.
COMPILED_WORDS = {"mypy_extensions", "librt"}


def below_src(path: Path) -> str:
    return path.relative_to(REPOSITORY / "src").as_posix()


def test_nothing_is_left_for_later() -> None:
    word = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b")
    found = [
        f"{below_src(path)}:{number}: {line.strip()}"
        for path in SOURCES
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if word.search(line)
    ]
    assert not found, "\n".join(found)


def test_milliseconds_say_by_which_clock() -> None:
    """Only ``clocks.py`` reads a clock in milliseconds: there each has its type.

    Seconds of ``time.monotonic()`` for a wait in one function need none, and quiet packages have no
    clock at all (the import contract "quiet").
    """
    found = []
    for package in ("protocols", "runtime", "node", "management"):
        for path in sorted((SOURCES_ROOT / package).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.BinOp) and isinstance(node.op, ast.FloorDiv):
                    text = ast.unparse(node)
                    if re.match(r"time\.(time|monotonic)_ns\(\) // (1_?000_?000|NS_PER_MS)$", text):
                        found.append(f"{below_src(path)}:{node.lineno}: {text}")
    assert not found, "\n".join(found)


def test_every_file_explains_itself() -> None:
    silent = [
        below_src(path) for path in SOURCES if not ast.get_docstring(ast.parse(path.read_text()))
    ]
    assert not silent


def test_the_table_of_compiled_files_names_existing_files() -> None:
    for one in native.COMPILED:
        for pattern in (*one.only.split(), *one.leave.split()):
            assert list((SOURCES_ROOT / one.folder).glob(pattern + ".py")), (one.folder, pattern)
    files = [file for folder in native.COMPILED for file in folder.files()]
    assert len(files) == len(set(files))


def test_quiet_files_written_for_the_compiler_are_compiled() -> None:
    """i64 and its like are slower than int when interpreted; they are there to be compiled.

    The types of times only name it: compiled files read them when they are compiled.
    """
    meant = []
    for package in QUIET:
        for path in (REPOSITORY / "src/penstock" / package).rglob("*.py"):
            imports = {
                (node.module or "").split(".")[0]
                for node in ast.walk(ast.parse(path.read_text()))
                if isinstance(node, ast.ImportFrom)
            }
            if imports & COMPILED_WORDS:
                meant.append(path.relative_to(REPOSITORY).as_posix())
    names_only = {"src/penstock/core/clock_types.py"}
    assert sorted(set(meant) - set(native.hot_files()) - names_only) == []


def origins(**environment: str) -> dict[str, str]:
    """Where a fresh interpreter finds each hot module."""
    modules = [native.module_name(file) for file in native.hot_files()]
    program = (
        "import importlib, json, sys\n"
        "print(json.dumps({m: importlib.import_module(m).__file__ for m in sys.argv[1:]}))"
    )
    kept = {key: value for key, value in os.environ.items() if not key.startswith("PENSTOCK_")}
    done = subprocess.run(
        [sys.executable, "-c", program, *modules],
        env=kept | {"PYTHONPATH": str(REPOSITORY / "src")} | environment,
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


def test_penstock_pure_runs_the_source() -> None:
    assert all(file.endswith(".py") for file in origins(PENSTOCK_PURE="1").values())


def test_the_build_under_test_is_the_one_asked_for() -> None:
    """On a machine that guards, every hot file is compiled; anywhere, no binary is outdated."""
    compiled = {module for module, file in origins().items() if file.endswith(".so")}
    if os.environ.get("PENSTOCK_REQUIRE_COMPILED") == "1":
        assert compiled == set(map(native.module_name, native.hot_files()))
    if compiled:
        built = native.Build().outputs()
        assert built is not None, "a file has changed since it was compiled: make setup"
        for place, made in built.items():
            assert filecmp.cmp(SOURCES_ROOT.parent / place, made), f"{place} is outdated"


def test_penstock_require_compiled_refuses_the_source() -> None:
    """Asked for both, the program cannot obey, and must not pretend to."""
    done = subprocess.run(
        [sys.executable, "-m", "penstock", "version"],
        env=os.environ
        | {"PYTHONPATH": str(REPOSITORY / "src")}
        | {"PENSTOCK_PURE": "1", "PENSTOCK_REQUIRE_COMPILED": "1"},
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode != 0
    assert "PENSTOCK_REQUIRE_COMPILED" in done.stderr


def test_there_is_one_version() -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    assert penstock.__version__ == project["version"]
    changes = (REPOSITORY / "CHANGELOG.md").read_text()
    assert re.search(rf"^## \[{re.escape(project['version'])}\]", changes, re.MULTILINE)


@pytest.mark.parametrize("words", ["make run", "make test"])
def test_the_readme_names_the_two_commands(words: str) -> None:
    assert words in (REPOSITORY / "README.md").read_text()


def test_lock_files_name_no_host() -> None:
    """A lock file pins versions and checksums; where to fetch them is each machine's business."""
    locks = [*REPOSITORY.glob("tests/**/package-lock.json"), *REPOSITORY.glob("tests/**/go.sum")]
    assert locks
    named = [path.name for path in locks if re.search(r'https?://|"resolved"', path.read_text())]
    assert not named
