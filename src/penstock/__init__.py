"""Penstock: a message broker with Apache Spark as its data pipeline (see ARCHITECTURE.md).

The hot files are shipped twice: as typed ``.py`` files and, where a C compiler was at
hand, as extension modules made from those very files.  ``PENSTOCK_PURE=1`` runs the
``.py`` files although compiled ones exist (for debugging, coverage, and the tests that
compare both); ``PENSTOCK_REQUIRE_COMPILED=1`` refuses to run without the compiled ones.
"""

import importlib
import os
import sys

__version__ = "0.1.0"


def _prefer_source() -> None:
    """Make imports below this package skip extension modules."""
    from importlib.machinery import FileFinder, SourceFileLoader

    package_dir = os.path.dirname(__file__)

    def finder(path: str) -> FileFinder:
        if not path.startswith(package_dir):
            raise ImportError
        return FileFinder(path, (SourceFileLoader, [".py"]))

    sys.path_hooks.insert(0, finder)
    for cached in [path for path in sys.path_importer_cache if path.startswith(package_dir)]:
        del sys.path_importer_cache[cached]


def _load_compiled() -> None:
    """Load the library of the compiled modules, which lie beside their source as shims.

    mypyc derives the ``__file__`` of each module from that of its library, which it expects above
    the package; here it is inside.
    """
    try:
        library = importlib.import_module("penstock.hot__mypyc")
    except ModuleNotFoundError:
        return
    package_dir, file_name = os.path.split(str(library.__file__))
    library.__file__ = os.path.join(os.path.dirname(package_dir), file_name)


if os.environ.get("PENSTOCK_PURE") == "1":
    _prefer_source()
_load_compiled()
