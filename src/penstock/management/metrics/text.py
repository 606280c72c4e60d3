"""Prometheus' text form: a family is its type, its sentence and its samples, one line each."""

from collections.abc import Iterable, Iterator
from math import isnan
from typing import Final, NamedTuple

from penstock.core.histogram import Histogram

COUNTER: Final = "counter"
GAUGE: Final = "gauge"
UNTYPED: Final = "untyped"
HISTOGRAM: Final = "histogram"
CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

BOUNDS_MS: Final = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 60_000)
"""Of the buckets of a histogram; each count is right to within 1 % of its bound."""

_ESCAPED: Final = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})

Number = int | float


class Family(NamedTuple):
    """``help``: its sentence; ``kind`` "" = a counter if the name ends in _total, else a gauge."""

    name: str
    help: str
    kind: str = ""

    def head(self, prefix: str = "") -> str:
        name = prefixed(self.name, prefix)
        kind = self.kind or (COUNTER if name.endswith("_total") else GAUGE)
        return f"# TYPE {name} {kind}\n# HELP {name} {self.help}\n"

    def alone(self, value: Number) -> str:
        """A family of one sample without labels."""
        return f"{self.head()}{self.name} {spelt(value)}\n"

    def labelled(self, samples: Iterable[tuple[str, Number]]) -> str:
        """Labels as ``labels`` spells them."""
        return self.head() + "".join(
            f"{self.name}{labels} {spelt(value)}\n" for labels, value in samples
        )

    def histogram(self, times_ms: Histogram) -> str:
        """Shown in seconds."""
        total = 0
        lines = [self.head()]
        for bound, count in zip(_bounds(), times_ms.counts(BOUNDS_MS), strict=True):
            total += count
            lines.append(f'{self.name}_bucket{{le="{bound}"}} {total}\n')
        lines.append(f"{self.name}_sum {int(times_ms.sum) / 1000}\n{self.name}_count {total}\n")
        return "".join(lines)


def _bounds() -> Iterator[str]:
    for bound_ms in BOUNDS_MS:
        yield str(bound_ms / 1000)
    yield "+Inf"


def prefixed(name: str, prefix: str) -> str:
    """A name of ours keeps its own prefix."""
    return prefix + name.removeprefix("rabbitmq_") if prefix and "rabbitmq_" in name else name


def labels(**values: str) -> str:
    """As they stand behind a name; "" without any."""
    if not values:
        return ""
    pairs = ",".join(f'{key}="{value.translate(_ESCAPED)}"' for key, value in values.items())
    return "{" + pairs + "}"


def spelt(value: Number) -> str:
    if isinstance(value, float) and isnan(value):
        return "NaN"
    return str(value)
