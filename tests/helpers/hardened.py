"""The configuration of docs/guide/hardening.md, with files of a test."""

from __future__ import annotations

from pathlib import Path

PAGE = Path(__file__).resolve().parents[2] / "docs" / "guide" / "hardening.md"


def hardened(directory: Path, **changed: str) -> str:
    """In TOML; ``changed``: values of other or more settings, as TOML spells them."""
    text = PAGE.read_text(encoding="utf-8").split("```toml\n")[1].split("```")[0]
    lines = text.replace("/etc/penstock/", f"{directory}/").splitlines()
    kept = [line for line in lines if line.partition(" =")[0] not in changed]
    return "\n".join([*kept, *(f"{key} = {value}" for key, value in changed.items())]) + "\n"
