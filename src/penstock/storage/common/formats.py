"""What the formats of all files share: numbers in their names, and a version in each block."""

from penstock.core.errors import Corrupt


def numbered(name: str, suffix: str) -> int:
    """N of a file called ``<N><suffix>``; 0 = not one of those."""
    stem = name.removesuffix(suffix)
    if stem == name or not stem.isascii() or not stem.isdigit() or stem.startswith("0"):
        return 0
    return int(stem)


def numbered_from_0(name: str, suffix: str) -> int:
    """As ``numbered``, where the first file has the number 0; -1 = not one of those."""
    return 0 if name == f"0{suffix}" else numbered(name, suffix) or -1


def check_version(path: str, what: str, version: int, known: int) -> None:
    """``known``: the newest one; all versions before it are read."""
    if not 0 < version <= known:
        upto = "version 1" if known == 1 else f"versions 1 to {known}"
        raise Corrupt(f"{path}: {what} format version {version}, this release reads {upto}")
