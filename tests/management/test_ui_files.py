"""The web UI's files: for everybody, with their types, their policy and their ETags."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from fnmatch import fnmatch
from pathlib import Path

import pytest

from penstock.management.http.ui_files import FOLDER
from tests.management.conftest import Served

REPOSITORY = Path(__file__).resolve().parents[2]
FILES = sorted(path for path in FOLDER.rglob("*") if path.is_file())
MODULES = [path for path in FILES if path.suffix == ".js"]
IMPORT = re.compile(
    r"""(?:^|;)(?:import|export)\b[^;"'`=]*?\bfrom\s*["']([^"']+)["']""", re.MULTILINE
)


def test_the_page_is_for_everybody_and_strict(served: Served) -> None:
    page = served.raw("/")
    assert page.status == 200
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    policy = page.headers["content-security-policy"]
    assert policy.startswith("default-src 'self';")
    assert "unsafe" not in policy
    assert 'href="/status"' in page.body.decode()


def test_the_pages_rabbitmq_has_beside_its_ui(served: Served) -> None:
    for path in ("/cli", "/cli/", "/api", "/api/", "/doc/stats.html", "/favicon.ico"):
        moved = served.raw(path)
        assert moved.status == 301, path
        assert served.raw(moved.headers["location"]).status == 200
    page = served.raw("/cli/index.html")
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert "/cli/rabbitmqadmin" in page.body.decode()
    assert 'href="/api/penstock/openapi.json"' in served.raw("/api/index.html").body.decode()
    assert served.raw("/cli/rabbitmqadmin").status == 404


@pytest.mark.parametrize(
    "name, content_type",
    [
        ("main.js", "text/javascript; charset=utf-8"),
        ("style.css", "text/css; charset=utf-8"),
        ("logo.svg", "image/svg+xml; charset=utf-8"),
        ("vendor/preact.js", "text/javascript; charset=utf-8"),
    ],
)
def test_types(served: Served, name: str, content_type: str) -> None:
    file = served.raw(f"/ui/{name}")
    assert (file.status, file.headers["content-type"]) == (200, content_type)
    assert file.body == (FOLDER / name).read_bytes()


def test_what_a_browser_has_is_not_sent_again(served: Served) -> None:
    first = served.raw("/ui/style.css")
    etag = first.headers["etag"]
    assert first.headers["cache-control"] == "no-cache"
    again = served.raw("/ui/style.css", {"If-None-Match": etag})
    assert (again.status, again.body, again.headers["etag"]) == (304, b"", etag)
    assert served.raw("/ui/style.css", {"If-None-Match": '"other"'}).status == 200


@pytest.mark.parametrize(
    "name", ["nosuch.js", "../app.py", "%2e%2e/app.py", "vendor/CHECKSUMS", "vendor", ""]
)
def test_nothing_else_can_be_asked_for(served: Served, name: str) -> None:
    assert served.raw(f"/ui/{name}").status == 404


def test_only_reading(served: Served) -> None:
    assert served.request("POST", "/ui/style.css", b"").status == 405
    assert served.request("HEAD", "/ui/style.css").status == 200


def test_every_import_is_a_file_here() -> None:
    assert (
        IMPORT.findall((FOLDER / "main.js").read_text(encoding="utf-8")).count("./lib/ui.js") == 1
    )
    assert "./preact.js" in IMPORT.findall((FOLDER / "vendor/signals.js").read_text("utf-8"))
    for module in MODULES:
        for target in IMPORT.findall(module.read_text(encoding="utf-8")):
            assert target.startswith("."), f"{module.name}: {target} would need a bundler"
            assert (module.parent / target).is_file(), f"{module.name}: {target}"


def test_every_page_of_the_table_is_there() -> None:
    table = (FOLDER / "pages/index.js").read_text(encoding="utf-8")
    for name in re.findall(r'path: .*module: "([^"]+)"', table):
        assert (FOLDER / "pages" / name).is_file(), name
    for name in re.findall(r'id: .*module: "([^"]+)"', table):
        assert (FOLDER / "panels" / name).is_file(), name


def test_markup_has_no_style_and_no_handler() -> None:
    """The policy would forbid them at run time; here one sees where."""
    forbidden = re.compile(r"""\sstyle=["'$]|\son[a-z]+="|javascript:|innerHTML|\beval\(""")
    for path in (*FOLDER.glob("*.html"), *MODULES):
        if "vendor" not in path.parts:
            found = forbidden.search(path.read_text(encoding="utf-8"))
            assert found is None, f"{path.name}: {found}"


def test_vendored_files_are_those_of_the_list() -> None:
    command = [sys.executable, str(REPOSITORY / "tools/vendor_ui.py"), "--check"]
    subprocess.run(command, check=True, env=os.environ, timeout=30)


def test_the_package_takes_every_file_along() -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))
    patterns = project["tool"]["setuptools"]["package-data"]["penstock.management"]
    for path in FILES:
        name = path.relative_to(FOLDER.parent).as_posix()
        fits = (fnmatch(name, one) and name.count("/") == one.count("/") for one in patterns)
        assert any(fits), f"{name} would not be installed"
