"""Fetches the web UI's four libraries from npm and puts them into ``management/ui/vendor``.

    python tools/vendor_ui.py           fetch, rewrite, write licences and CHECKSUMS
    python tools/vendor_ui.py --check   say whether the files are those CHECKSUMS names

The files are what their authors published, in one folder, with two changes: bare imports
(``from "preact"``) become relative ones, so that a browser needs no bundler and no import map, and
references to source maps, which are not here, are cut.  ``npm`` does the fetching.
"""

import hashlib
import re
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

VENDOR = Path(__file__).parent.parent / "src/penstock/management/ui/vendor"
CHECKSUMS = VENDOR / "CHECKSUMS"

# package: version, {file in the package: file here}
PACKAGES = {
    "preact": (
        "11.2.0",
        {
            "dist/preact.mjs": "preact.js",
            "hooks/dist/hooks.mjs": "hooks.js",
            "LICENSE": "LICENSE.preact",
        },
    ),
    "htm": ("3.1.1", {"dist/htm.mjs": "htm.js", "LICENSE": "LICENSE.htm"}),
    "@preact/signals": (
        "2.11.4",
        {"dist/signals.mjs": "signals.js", "LICENSE": "LICENSE.signals"},
    ),
    "@preact/signals-core": (
        "1.14.5",
        {"dist/signals-core.mjs": "signals-core.js", "LICENSE": "LICENSE.signals-core"},
    ),
    "uplot": (
        "1.6.32",
        {
            "dist/uPlot.iife.min.js": "uplot.js",
            "dist/uPlot.min.css": "uplot.css",
            "LICENSE": "LICENSE.uplot",
        },
    ),
}
MODULES = {
    "preact": "./preact.js",
    "preact/hooks": "./hooks.js",
    "@preact/signals-core": "./signals-core.js",
}
IMPORT = re.compile(r"""(\bfrom\s*|\bimport\s*)(["'])([^"'./][^"']*)\2""")
SOURCE_MAP = re.compile(r"^//# sourceMappingURL=.*\n?", re.MULTILINE)


def fetch(package: str, version: str, folder: Path) -> tarfile.TarFile:
    printed = subprocess.run(
        ["npm", "pack", "--silent", f"{package}@{version}"],
        cwd=folder,
        check=True,
        capture_output=True,
        text=True,
    )
    return tarfile.open(folder / printed.stdout.split()[-1])


def rewritten(name: str, text: str) -> str:
    if not name.endswith(".js"):
        return text
    text = IMPORT.sub(lambda found: f'{found[1]}"{MODULES[found[3]]}"', text)
    text = SOURCE_MAP.sub("", text)
    # The small build of uPlot is a script with one global; a module exports it.
    return text + "export default uPlot;\n" if name == "uplot.js" else text


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def vendor() -> None:
    VENDOR.mkdir(parents=True, exist_ok=True)
    lines = []
    with tempfile.TemporaryDirectory() as folder:
        for package, (version, files) in PACKAGES.items():
            lines.append(f"# {package} {version}")
            with fetch(package, version, Path(folder)) as archive:
                for there, here in files.items():
                    member = archive.extractfile(f"package/{there}")
                    assert member is not None, there
                    path = VENDOR / here
                    path.write_text(rewritten(here, member.read().decode()))
                    lines.append(f"{digest(path)}  {here}")
    CHECKSUMS.write_text("\n".join(lines) + "\n")


def differences() -> list[str]:
    lines = [line for line in CHECKSUMS.read_text().splitlines() if not line.startswith("#")]
    named = {name: checksum for checksum, name in (line.split("  ") for line in lines)}
    there = {path.name for path in VENDOR.iterdir()} - {CHECKSUMS.name}
    wrong = [name for name in named if name in there and digest(VENDOR / name) != named[name]]
    return sorted([*wrong, *(there ^ set(named))])


def main() -> None:
    if sys.argv[1:] != ["--check"]:
        vendor()
    elif found := differences():
        sys.exit("not as CHECKSUMS says: " + ", ".join(found))


if __name__ == "__main__":
    main()
