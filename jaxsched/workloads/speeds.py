"""How fast each GPU model runs each class of jobs. A job's duration is its run time at speed 1.

Speeds are exact decimals. Unlisted pairs, CPU-only jobs and nodes without GPUs have speed 1.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path

import numpy as np

from jaxsched.errors import InputError, nearest
from jaxsched.workloads.readers.csv_text import read_text_table, require_columns
from jaxsched.workloads.times import parse_exact

ANY_CLASS = "*"  # a row of the table for every class that has none of its own
_DIGITS = 10**6  # speeds have at most six decimals, so that ceil(duration / speed) stays exact in int64
_FASTEST = 1000
# Throughput of one GPU relative to P100 in Gavel's physical cluster (OSDI'20; repository
# stanford-futuredata/gavel, physical_cluster_throughputs.json, MIT), rounded to three decimals:
# ResNet-50 batch 64, CycleGAN, LM batch 80 and A3C.
GAVEL = {
    "cnn": {"K80": "0.285", "P100": "1", "V100": "1.728"},
    "gan": {"K80": "0.228", "P100": "1", "V100": "1.971"},
    "language": {"K80": "0.302", "P100": "1", "V100": "1.438"},
    "reinforcement": {"K80": "0.616", "P100": "1", "V100": "1.303"},
}
# Per-epoch times of Zeus (NSDI'23; repository ml-energy/zeus, summary_power_*.csv, Apache-2.0) at the top
# power limit, relative to P100: V100 1.74 (ResNet-50), 1.78 (BERT), 3.95 (DeepSpeech2), 1.90 (NCF);
# A40 = 0.94, 1.8, 1.14 and 1.00 times V100.
ZEUS = {
    "cnn": {"P100": "1", "V100": "1.74", "A40": "1.636"},
    "bert": {"P100": "1", "V100": "1.78", "A40": "3.204"},
    "speech": {"P100": "1", "V100": "3.95", "A40": "4.503"},
    "recommendation": {"P100": "1", "V100": "1.9", "A40": "1.9"},
}
# openb names no speeds. T4, P100 and V100 lie inside the ranges of Gavel and Zeus; A10, G2 and G3 are this
# project's assumption (G2 and G3 are undisclosed models, taken as A10-like and A100-like).
OPENB = {
    "fraction": {
        "T4": "0.8",
        "P100": "1",
        "V100M16": "1.3",
        "V100M32": "1.3",
        "A10": "1.5",
        "G2": "1.5",
        "G3": "2",
    },
    "single": {
        "T4": "0.7",
        "P100": "1",
        "V100M16": "1.7",
        "V100M32": "1.7",
        "A10": "1.6",
        "G2": "1.6",
        "G3": "3",
    },
    "multi": {
        "T4": "0.6",
        "P100": "1",
        "V100M16": "1.9",
        "V100M32": "2",
        "A10": "1.7",
        "G2": "1.7",
        "G3": "4",
    },
}


@dataclass(frozen=True)
class SpeedTable:
    """Speeds of (class, model) pairs; ``classes`` fixes the numbers of the job classes of a pool."""

    name: str
    classes: tuple[str, ...] = ()
    speed: Mapping[tuple[str, str], Fraction] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for (job_class, model), value in self.speed.items():
            if not 0 < value <= _FASTEST or _DIGITS % value.denominator:
                raise InputError(
                    f"speed of class {job_class!r} on {model!r} in {self.name}: {value} must be a decimal "
                    f"above 0, at most {_FASTEST}, with at most six digits after the point"
                )

    def of(self, job_class: str, model: str) -> Fraction:
        """Speed of a class on a model; "" (no GPU) and unlisted pairs run at speed 1."""
        if not model:
            return Fraction(1)
        return self.speed.get((job_class, model), self.speed.get((ANY_CLASS, model), Fraction(1)))

    def matrix(self, classes: Sequence[str], models: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """Numerators and denominators, each i64[classes, models]."""
        speeds = [[self.of(c, m) for m in models] for c in classes]
        over = [[s.numerator for s in row] for row in speeds]
        under = [[s.denominator for s in row] for row in speeds]
        shape = (len(classes), len(models))
        return np.array(over, dtype=np.int64).reshape(shape), np.array(under, dtype=np.int64).reshape(shape)

    def mean(self, job_class: str, gpus_by_model: Mapping[str, int]) -> Fraction:
        """The cluster's mean speed for a class: the average over its GPUs."""
        total = sum(gpus_by_model.values())
        if not total:
            return Fraction(1)
        return sum((n * self.of(job_class, m) for m, n in gpus_by_model.items()), Fraction(0)) / total


def _from_text(name: str, rows: Mapping[str, Mapping[str, str]]) -> SpeedTable:
    speed = {(c, m): Fraction(text) for c, row in rows.items() for m, text in row.items()}
    return SpeedTable(name, tuple(rows), speed)


UNIFORM = SpeedTable("uniform")
TABLES = {
    "uniform": UNIFORM,
    "gavel": _from_text("gavel", GAVEL),
    "zeus": _from_text("zeus", ZEUS),
    "openb": _from_text("openb", OPENB),
}


def get_speeds(name: str) -> SpeedTable:
    """A shipped table by name, or one from a CSV file ``class,model,speed`` (class ``*`` or blank: all)."""
    if name in TABLES:
        return TABLES[name]
    if Path(name).suffix or Path(name).is_file():
        return read_speeds_csv(name)
    raise InputError(f"no speed table {name!r} and no such file; {nearest(name, TABLES)}")


def read_speeds_csv(path: str | Path) -> SpeedTable:
    """Speeds from a CSV with the columns ``class, model, speed``; a repeated pair is refused."""
    table = read_text_table(path, "speeds")
    require_columns(table, ("class", "model", "speed"), path)
    values = parse_exact([str(t).strip() for t in table["speed"]], "speed", str(path))
    speed: dict[tuple[str, str], Fraction] = {}
    for row, (c, m, value) in enumerate(
        zip(table["class"], table["model"], values.tolist(), strict=True), start=1
    ):
        pair = (c.strip() or ANY_CLASS, m.strip())
        if pair in speed:
            raise InputError(f"{path}: row {row}: class {pair[0]!r} on model {pair[1]!r} is given twice")
        speed[pair] = Fraction(value)
    return SpeedTable(str(path), _named_classes(c for c, _ in speed), speed)


def _named_classes(classes: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(set(classes) - {ANY_CLASS}))
