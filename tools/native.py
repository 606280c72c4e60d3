"""Compiles the hot files of Penstock to one shared library, module by module.

mypyc turns the typed Python files of ``COMPILED`` into C, one C file per module.  Each C file
becomes an object of its own, on all cores, and these are linked to ``penstock/hot__mypyc.*.so``.
Beside each Python file lies a small shim (``message.*.so`` beside ``message.py``) through which
Python's import system finds the compiled module in that library; those of a folder are equal.

What makes the next build short:

* An object is named after the hash of its C file, of the declarations this file uses, of the
  options and of the compiler.  An object that exists is not compiled again.
* mypyc writes one header of 14,000 lines for all modules, and numbers the literals ("abc", 1.5) of
  all modules in one table: one new field or literal would change every C file.  Here a C file has
  only the declarations it refers to, and refers to a literal by a name that is the hash of its
  value; a function that runs when the library is loaded fills in these names.
* If no file that mypy read has changed since the last build, mypy is not started.

Symbols are hidden: calls between modules are direct, and the C compiler inlines within a module.
``setup.py`` does this for a wheel, ``python tools/native.py`` beside the source.

    PENSTOCK_NO_COMPILE=1        compile nothing, and remove what was compiled
    PENSTOCK_REQUIRE_COMPILED=1  fail where it cannot be compiled, instead of leaving the program to
                                 run interpreted
"""

from __future__ import annotations

import filecmp
import functools
import gc
import hashlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parents[1]
SOURCE: Final = ROOT / "src"
BUILD: Final = ROOT / "build" / "native" / str(sys.implementation.cache_tag)
SUFFIX: Final = str(sysconfig.get_config_var("EXT_SUFFIX"))
GROUP: Final = "penstock.hot"
LIBRARY: Final = GROUP + "__mypyc"
STATICS: Final = "__native_hot.c"
# FAST takes the C compiler twice the time of SMALL, and that the double of COLD.  The codec of AMQP
# alone has half of the time that a profile of the benchmarks finds in compiled code.
# benchmarks/results/2026-11-23-build.md has the pairs.
FAST: Final = "-O2"
SMALL: Final = "-O1"
COLD: Final = "-Og"


class CompiledFolder(NamedTuple):
    """A folder below src/penstock: its files that match ``only``, without those of ``leave``."""

    folder: str
    level: str
    only: str = "*"
    leave: str = ""

    def files(self) -> set[str]:
        found, left = self._matching(self.only), self._matching(self.leave)
        return {path for path in found - left if not path.endswith("__init__.py")}

    def _matching(self, patterns: str) -> set[str]:
        folder = SOURCE / "penstock" / self.folder
        paths = (path for pattern in patterns.split() for path in folder.glob(pattern + ".py"))
        return {path.relative_to(ROOT).as_posix() for path in paths}


COMPILED: Final = [
    CompiledFolder("core", SMALL, leave="capacity clock_types control errors patterns printable"),
    CompiledFolder("core/counting", SMALL, leave="io_counts"),
    CompiledFolder("core/events", SMALL, only="book"),
    CompiledFolder("protocols/amqp/codec", FAST),
    CompiledFolder("protocols/amqp", SMALL, leave="description loopback_client"),
    CompiledFolder("protocols/nsq/codec", SMALL),
    CompiledFolder("protocols/nsq", SMALL, leave="authority description layers settings"),
    CompiledFolder("protocols/peers/codec", SMALL, only="frames mirrors queues"),
    CompiledFolder("protocols/peers", SMALL, only="link queues session"),
    CompiledFolder("protocols/ranges/codec", SMALL, only="block"),
    CompiledFolder("routing", SMALL),
    CompiledFolder("queues", SMALL, leave="stream_description"),
    CompiledFolder("backing", FAST, leave="description"),
    CompiledFolder("streams", SMALL, leave="audit"),
    CompiledFolder("storage/common", SMALL, leave="sqlite_*"),
    CompiledFolder("storage/store", SMALL),
    CompiledFolder("storage/journal", SMALL),
    CompiledFolder("storage/index", SMALL),
    CompiledFolder("storage/engine", SMALL),
    CompiledFolder("broker", SMALL, only="broker budgets lookup queue_turns vhost_maker"),
    CompiledFolder("broker/rules", SMALL, leave="erlang_terms ha_policy queue_options"),
    CompiledFolder("broker/topology", SMALL, leave="changes declaring super_streams"),
    CompiledFolder("broker/transfers", SMALL, only="dead_letters delays replies traces"),
    CompiledFolder("cluster/agreement", COLD, only="hearing membership"),
    CompiledFolder(
        "cluster/mirrors",
        SMALL,
        only="backing group mirroring operations part_copy queue replica safety star_group telling",
    ),
    CompiledFolder(
        "cluster/mirrors",
        COLD,
        only="copy_positions group_codec joinings stream_copy succession sync*",
    ),
    CompiledFolder("cluster/remote", COLD),
    CompiledFolder("cluster/ring", SMALL),
    CompiledFolder("node/cluster", SMALL, only="known_revisions mirrors queues"),
    CompiledFolder(
        "runtime",
        SMALL,
        only="connection loop output_budget publish_credit session thread_calls turn",
    ),
    CompiledFolder("", SMALL, only="clocks"),
    CompiledFolder("client", COLD, only="load"),
]


def hot_files() -> dict[str, str]:
    """Path below the root -> optimisation level, of every file that is compiled."""
    return {path: folder.level for folder in COMPILED for path in sorted(folder.files())}


def exported(module: str) -> str:
    """The name of a module in C, as mypyc writes it."""
    return module.replace(".", "___")


def file_name(module: str) -> str:
    """Where a compiled module lies, below src."""
    return module.replace(".", "/") + SUFFIX


def output_names() -> list[str]:
    return [file_name(module) for module in (LIBRARY, *map(module_name, hot_files()))]


def module_name(path: str) -> str:
    return path.removeprefix("src/").removesuffix(".py").replace("/", ".")


# ------------------------------------------------------------------------------------------------
# Python to C, in a process of its own: it ends without tearing down mypy's million objects


def generate(paths: list[str]) -> list[str]:
    """Write the C of ``paths`` to BUILD/c; return the files below src that mypy read for it."""
    from mypy.errors import CompileError
    from mypy.fscache import FileSystemCache
    from mypyc.build import construct_groups, get_mypy_config
    from mypyc.codegen import emitmodule
    from mypyc.common import RUNTIME_C_FILES
    from mypyc.errors import Errors
    from mypyc.irbuild.mapper import Mapper
    from mypyc.namegen import NameGenerator
    from mypyc.options import CompilerOptions

    gc.disable()
    wanted = CompilerOptions(multi_file=True, include_runtime_files=False, group_name=GROUP)
    cache = FileSystemCache()
    given = ["--config-file=mypy.ini", *paths]
    sources, all_sources, options = get_mypy_config(given, None, wanted, cache)
    groups = construct_groups(sources, False, True, GROUP)
    try:
        checked = emitmodule.parse_and_typecheck(all_sources, options, wanted, groups, cache)
    except CompileError as error:
        raise SystemExit("\n".join(error.messages)) from None
    errors = Errors(options)
    ((members, name),) = groups
    mapper = Mapper({source.module: name for source in members})
    checked.manager.errors.set_file("<mypyc>", module=None, scope=None, options=options)
    modules = emitmodule.compile_modules_to_ir(checked, mapper, wanted, errors)
    if errors.num_errors:
        raise SystemExit("\n".join(errors.new_messages()))
    generator = emitmodule.GroupGenerator(
        {source.module: modules[source.module] for source in members},
        {source.module: checked.graph[source.module].xpath for source in members},
        name,
        mapper.group_map,
        NameGenerator([[source.module for source in members]], separate=False),
        wanted,
    )
    texts = {Path(file).name: text for file, text in generator.generate_c_for_modules()}
    units = independent(texts, generator.context.literals)
    parts = [
        *RUNTIME_C_FILES,
        *(part.path for part in emitmodule.collect_source_dependencies(modules)),
    ]
    for part in parts:
        units[f"runtime_{Path(part).name}"] = f'#include "common.h"\n#include <{part}>\n'
    folder = BUILD / "c"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for file, text in units.items():
        (folder / file).write_text(text)
    read = [state.path for state in checked.graph.values() if state.path]
    return [path for path in read if path.startswith("src/")]


def literal_names(literals: Any) -> list[str]:
    """Index in mypyc's table of literals -> a name that depends on the value only."""
    names = ["CPyLit_None", "CPyLit_False", "CPyLit_True"]
    for kind in ("str", "bytes", "int", "float", "complex", "tuple", "frozenset"):
        for value in getattr(literals, kind + "_literals"):
            written = sorted(map(repr, value)) if kind == "frozenset" else value
            digest = hashlib.sha256(f"{kind} {written!r}".encode()).hexdigest()
            names.append(f"CPyLit_{kind}_{digest[:24]}")
    return names


def independent(texts: dict[str, str], literals: Any) -> dict[str, str]:
    """C files that include nothing of each other, from those that mypyc generated."""
    names = literal_names(literals)
    header = texts.pop("__native_hot.h") + texts.pop("__native_internal_hot.h")
    declared = Declarations(header)
    declared.add("\n".join(f"extern PyObject *{name};" for name in names))
    places = "".join(f"&{name}, " for name in names)
    table = "".join(f"PyObject *{name};\n" for name in names)
    table += f"static PyObject **const literal_places[] = {{{places}}};\n"
    fill = f"for (int i = 0; i < {len(names)}; i++) *literal_places[i] = CPyStatics[i];\n"
    units = {"common.h": declared.includes()}
    for file, text in texts.items():
        body = re.sub(r'^#include "__native_\w*hot\.h"\n', "", text, flags=re.MULTILINE)
        if file == STATICS:
            loaded = "is_initialized = 1;\n"
            assert body.count(loaded) == 1, "mypyc fills its table of literals elsewhere now"
            body = table + body.replace(loaded, fill + loaded)
        else:
            body = re.sub(r"\bCPyStatics\[(\d+)\]", lambda found: names[int(found[1])], body)
        body = re.sub(r"^[ \t]+", "", body, flags=re.MULTILINE)
        units[file] = f'#include "common.h"\n{declared.used_by(body)}\n{body}'
    return units


class Declarations:
    """The declarations of a C header, each under the names that it declares."""

    _WORD = re.compile(r"[A-Za-z_]\w*")
    _NAME = (
        re.compile(r"^} (\w+);", re.MULTILINE),
        re.compile(r"^#define (?!MYPYC_DECLARED)(\w+)", re.MULTILINE),
        re.compile(r"^typedef [^{]*\(\*(\w+)\)\("),
        re.compile(r"^(?:extern )?[^({=\[]*?(\w+) ?[(;\[]"),
    )

    def __init__(self, header: str) -> None:
        self._includes: dict[str, None] = {}
        self._texts: list[str] = []
        self._places: dict[str, list[int]] = {}
        self.add(header)

    def add(self, header: str) -> None:
        for text in self._split(header):
            names = [name for pattern in self._NAME[:2] for name in pattern.findall(text)]
            if not names:
                match = self._NAME[2].search(text) or self._NAME[3].search(text)
                assert match is not None, f"what does this declare? {text}"
                names = [match[1]]
            for name in names:
                self._places.setdefault(name, []).append(len(self._texts))
            self._texts.append(text)

    def _split(self, header: str) -> Iterator[str]:
        lines: list[str] = []
        depth = 0
        guarded = False
        for line in header.splitlines():
            if line.startswith("#include"):
                if "__native" not in line:
                    self._includes[line] = None
                continue
            guarded = guarded or line.startswith("#ifndef MYPYC_DECLARED")
            if not lines and (not line or (line.startswith("#") and not guarded)):
                continue
            lines.append(line)
            depth += line.count("{") - line.count("}")
            if line == "#endif" if guarded else depth == 0 and line.endswith(";"):
                yield "\n".join(lines)
                lines, guarded = [], False
        assert not lines, f"an open declaration: {lines}"

    def includes(self) -> str:
        return "\n".join(self._includes) + "\n"

    def used_by(self, body: str) -> str:
        """The declarations that ``body`` refers to, and those that they refer to, in order."""
        words, seen, used = set(self._WORD.findall(body)), set[str](), set[int]()
        while words:
            word = words.pop()
            seen.add(word)
            for place in self._places.get(word, ()):
                if place not in used:
                    used.add(place)
                    words |= self._words(place) - seen
        return "\n".join(self._texts[place] for place in sorted(used))

    @functools.cache  # noqa: B019 - the object lives as long as the process
    def _words(self, place: int) -> frozenset[str]:
        return frozenset(self._WORD.findall(self._texts[place]))


# ------------------------------------------------------------------------------------------------
# C to objects, and objects to the library and its shims

# Python looks for PyInit_message in message.*.so; that of mypyc is in the library, in a capsule.
SHIM: Final = """\
extern void *PyCapsule_Import(const char *name, int no_block);
#define SHIM(last, capsule) \\
    __attribute__((visibility("default"))) void *PyInit_##last(void) { \\
        void *(*init)(void) = PyCapsule_Import(capsule, 0); \\
        return init ? init() : 0; \\
    }
"""


class Failed(Exception):
    """A command of the build failed; the text has what it said."""


def run(command: list[str]) -> str:
    try:
        done = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True)
    except OSError as error:
        raise Failed(str(error)) from None
    if done.returncode != 0:
        raise Failed(f"{shlex.join(command[:1])} failed:\n{(done.stdout + done.stderr)[-4000:]}")
    return done.stdout


def digest(*parts: str | bytes) -> str:
    made = hashlib.sha256()
    for part in parts:
        made.update(part.encode() if isinstance(part, str) else part)
        made.update(b"\0")
    return made.hexdigest()[:32]


class Step(NamedTuple):
    """A file named after the hash of all that goes into it, and the command that makes it."""

    out: Path
    command: list[str]
    size: int

    @classmethod
    def of(cls, name: str, command: list[str], *inputs: str | bytes) -> Step:
        stem, _, suffix = name.rpartition(".")
        out = BUILD / "made" / f"{stem}.{digest(*command, *inputs)}.{suffix}"
        return cls(out, command, sum(map(len, inputs)))

    def do(self) -> None:
        """``out`` appears when it is complete."""
        unfinished = self.out.with_suffix(".part")
        run([*self.command, "-o", str(unfinished)])
        unfinished.replace(self.out)


class Compiler:
    """The C compiler of this machine, with the options of this build."""

    def __init__(self) -> None:
        import mypyc

        config = sysconfig.get_config_vars()
        runtime = Path(mypyc.__file__).parent / "lib-rt"
        self.sources = sorted((BUILD / "c").glob("*.c"))
        self._common = BUILD / "c" / "common.h"
        self._compile = [
            *shlex.split(os.environ.get("CC") or str(config["CC"])),
            *["-DNDEBUG", "-fPIC", "-fwrapv", "-fvisibility=hidden", "-g0", "-w", "-pipe"],
            *shlex.split(os.environ.get("CFLAGS", "")),
            *(f"-I{path}" for path in (BUILD / "c", runtime, sysconfig.get_path("include"))),
        ]
        linker = shlex.split(os.environ.get("LDSHARED") or str(config["LDSHARED"]))
        # A Python in a folder of its own would have that folder searched for libraries.
        linker = [word for word in linker if not word.startswith("-Wl,-rpath")]
        self._link = [*linker, *shlex.split(os.environ.get("LDFLAGS", ""))]
        self._version = run([self._compile[0], "--version"]) + version("mypy") + sys.version

    def object(self, source: Path, level: str) -> Step:
        command = [*self._compile, level, "-include", str(self._header(level)), "-c", str(source)]
        inputs = (self._version, self._common.read_bytes(), source.read_bytes())
        return Step.of(source.stem + ".o", command, *inputs)

    def _header(self, level: str) -> Path:
        return self._common.with_name(f"common{level}.h")

    def read_headers(self, levels: Iterable[str]) -> None:
        """Python's headers are read once per level, not once per file."""
        for level in sorted(set(levels)):
            header = self._header(level)
            header.write_text('#include "common.h"\n')
            run([*self._compile, level, "-x", "c-header", str(header), "-o", f"{header}.gch"])

    def shims(self, modules: Iterable[str]) -> dict[str, Step]:
        """Module -> its shim; the modules of one package have copies of one file."""
        made: dict[str, Step] = {}
        packages: dict[str, list[str]] = {}
        for module in sorted(modules):
            packages.setdefault(module.rpartition(".")[0], []).append(module)
        for package, members in packages.items():
            lines = (
                f'SHIM({module.rpartition(".")[2]}, "{LIBRARY}.init_{exported(module)}")'
                for module in members
            )
            text = SHIM + "\n".join(lines) + "\n"
            source = BUILD / f"shim_{exported(package)}.c"
            source.write_text(text)
            command = [*self._link, "-fPIC", "-O1", str(source)]
            made |= dict.fromkeys(members, Step.of(f"{package}.so", command, self._version, text))
        return made

    def library(self, objects: list[Step]) -> Step:
        return Step.of("hot.so", [*self._link, *sorted(str(step.out) for step in objects)])


class Build:
    """Brings what lies in BUILD up to date: C, objects, shims, library."""

    def __init__(self) -> None:
        self._levels = hot_files()
        self._tools = digest(Path(__file__).read_bytes(), version("mypy"), sys.version)
        self._record = BUILD / "record.json"

    def outputs(self) -> dict[str, str] | None:
        """Path below src -> file in BUILD that belongs there; None if a source has changed."""
        try:
            record = json.loads(self._record.read_text())
            if record["state"] != self._state_of(record["read"]):
                return None
        except (FileNotFoundError, ValueError, KeyError):
            return None
        outputs: dict[str, str] = record["outputs"]
        return outputs if all(map(os.path.exists, outputs.values())) else None

    def _state_of(self, read: list[str]) -> str:
        contents = [digest((ROOT / path).read_bytes()) for path in read]
        return digest(self._tools, *self._levels, *read, *contents)

    def run(self) -> dict[str, str]:
        """Compile what is not compiled yet, and return ``outputs``.

        Raises ``Failed``.
        """
        outputs = self.outputs()
        if outputs is not None:
            return outputs
        self._record.unlink(missing_ok=True)
        (BUILD / "made").mkdir(parents=True, exist_ok=True)
        say(f"translating {len(self._levels)} files to C")
        generated = run([sys.executable, __file__, "--generate", *self._levels])
        read = sorted({"mypy.ini", *self._levels, *generated.split()})
        state = self._state_of(read)
        compiler = Compiler()
        hot = {module_name(path): level for path, level in self._levels.items()}
        levels = {f"__native_{exported(module)}": level for module, level in hot.items()}
        objects = [compiler.object(file, levels.get(file.stem, FAST)) for file in compiler.sources]
        do("compiling", objects, lambda: compiler.read_headers({FAST, SMALL, COLD}))
        products = compiler.shims(hot) | {LIBRARY: compiler.library(objects)}
        do("linking", products.values())
        for old in {*BUILD.glob("made/*")} - {step.out for step in (*objects, *products.values())}:
            old.unlink()
        outputs = {file_name(module): str(step.out) for module, step in products.items()}
        record = {"read": read, "state": state, "outputs": outputs}
        self._record.write_text(json.dumps(record, indent=1))
        return outputs


def do(verb: str, steps: Iterable[Step], first: Callable[[], None] | None = None) -> None:
    """Do the steps whose files are missing, the longest first, on all cores."""
    lacking = {step.out: step for step in steps if not step.out.exists()}
    missing = sorted(lacking.values(), key=lambda step: -step.size)
    if missing and first:
        first()
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        running = [pool.submit(step.do) for step in missing]
        for number, done in enumerate(as_completed(running), 1):
            done.result()
            say(f"{verb} {number} of {len(missing)}", last=number == len(missing))


def place(outputs: dict[str, str], folder: Path) -> None:
    """Copy what was built to ``folder``, and remove compiled files that do not belong there."""
    for old in {*folder.glob("penstock/**/*" + SUFFIX)} - {folder / path for path in outputs}:
        old.unlink()
    for path, built in outputs.items():
        target = folder / path
        if not target.exists() or not filecmp.cmp(built, target, shallow=False):
            target.parent.mkdir(parents=True, exist_ok=True)
            new = target.with_suffix(".new")
            shutil.copyfile(built, new)
            new.replace(target)


def build_into(folder: Path) -> None:
    """Compile into ``folder``; where that cannot be, say so and leave no compiled file there.

    Raises ``SystemExit`` if PENSTOCK_REQUIRE_COMPILED=1 and it cannot be.
    """
    reason = "PENSTOCK_NO_COMPILE=1 asks for that"
    try:
        if os.environ.get("PENSTOCK_NO_COMPILE") != "1":
            place(Build().run(), folder)
            return
    except Failed as failure:
        reason = str(failure)
        if shutil.which(shlex.split(os.environ.get("CC") or "cc")[0]) is None:
            reason += "\nThere is no C compiler here (Debian: apt-get install gcc python3-dev)"
        elif "Python.h" in reason:
            reason += "\nPython's headers are missing here (Debian: apt-get install python3-dev)"
    place({}, folder)
    if os.environ.get("PENSTOCK_REQUIRE_COMPILED") == "1":
        raise SystemExit(f"PENSTOCK_REQUIRE_COMPILED=1, but nothing was compiled: {reason}")
    print(
        f"\nWARNING: nothing was compiled, and the broker will run interpreted, several times"
        f" slower:\n{reason}",
        file=sys.stderr,
    )


def say(text: str, *, last: bool = True) -> None:
    """Progress: a line that is rewritten on a terminal, else a line after every tenth file."""
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="\n" if last else "", file=sys.stderr, flush=True)
    elif last or re.search(r"0 of", text):
        print(text, file=sys.stderr, flush=True)


def main() -> None:
    if sys.argv[1:2] == ["--generate"]:
        print(*generate(sys.argv[2:]), flush=True)
        os._exit(0)
    build_into(SOURCE)


if __name__ == "__main__":
    main()
