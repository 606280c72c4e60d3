"""What became of the runs of a file of pipelines: a line of JSON each, the newest last.

A run is one call of a pipeline: until it was done, stopped or failed.  The record is cut to
``KEPT`` lines when its program starts.
"""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

from penstock.spark.state.places import alone, file_name_of, state_home

KEPT = 1000


class RunRecord:
    """The record of one file, in ``home``; its threads may add at the same time."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self._file = home / "runs.jsonl"
        self._adding = threading.Lock()

    @classmethod
    def of_file(cls, file: Path) -> "RunRecord":
        return cls(state_home() / "run" / file_name_of("/", str(file.absolute())))

    @contextmanager
    def alone(self) -> Iterator[None]:
        """One program for a file at a time; raises ResourceLocked."""
        with alone(self.home / "lock", f"another program runs these pipelines in {self.home}"):
            kept = self.last(KEPT)
            draft = self._file.with_suffix(".draft")
            draft.write_text("".join(f"{json.dumps(one)}\n" for one in kept))
            draft.replace(self._file)
            yield

    def add(
        self,
        pipeline: str,
        result: str,
        began: datetime,
        seconds: float,
        error: str,
        figures: dict[str, Any],
    ) -> None:
        told = {
            "pipeline": pipeline,
            "result": result,
            "began": began.isoformat(timespec="seconds"),
            "seconds": seconds,
            **({"error": error} if error else {}),
            "figures": figures,
        }
        line = json.dumps(told, default=str)
        with self._adding, self._file.open("a", encoding="utf-8") as file:
            file.write(f"{line}\n")

    def last(self, count: int) -> list[dict[str, Any]]:
        """The newest runs; a line that a kill has cut is left out."""
        try:
            lines = self._file.read_text(encoding="utf-8").splitlines()[-count:]
        except FileNotFoundError:
            return []
        return [json.loads(line) for line in lines if line.endswith("}")]
