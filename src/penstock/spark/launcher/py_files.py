"""The data source as one small archive, for machines of a cluster that do not have it.

Workers need ``pyspark_penstock`` and ``penstock_ranges``, and nothing else of Penstock.  A
session on a cluster sends it by itself (``session``); the file is for ``spark-submit --py-files``.
"""

import zipfile
from pathlib import Path

FIXED_TIME = (1980, 1, 1, 0, 0, 0)
"""The same sources make the same bytes."""


def write_py_files(target: Path) -> list[str]:
    import penstock_ranges
    import pyspark_penstock

    target.parent.mkdir(parents=True, exist_ok=True)
    names = []
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for package in (penstock_ranges, pyspark_penstock):
            folder = Path(str(package.__file__)).resolve().parent
            for source in sorted(folder.glob("*.py")):
                name = f"{folder.name}/{source.name}"
                archive.writestr(zipfile.ZipInfo(name, FIXED_TIME), source.read_bytes())
                names.append(name)
    return names
