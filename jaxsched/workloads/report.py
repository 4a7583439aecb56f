"""What loading a trace did: how many rows, which were left out and why, and what should be looked at."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction


@dataclass(frozen=True)
class ImpossibleJob:
    """A job that does not fit the empty cluster, and would wait for ever."""

    job: str
    row: int  # row of the job table, from 0
    reason: str


@dataclass(frozen=True)
class LoadReport:
    """Counts of one loaded job list: ``rows_read == kept + sum(dropped.values())``.

    ``censored`` counts kept-or-dropped rows whose end is only the end of the trace. ``impossible`` and
    ``offered_load`` (GPU demand over capacity of each GPU model) need a cluster: see ``pool.report_on``.
    """

    source: str
    rows_read: int
    kept: int
    dropped: Mapping[str, int] = field(default_factory=dict)
    censored: int = 0
    warnings: tuple[str, ...] = ()
    impossible: tuple[ImpossibleJob, ...] = ()
    offered_load: Mapping[str, Fraction] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.rows_read != self.kept + sum(self.dropped.values()):
            raise AssertionError(f"report does not add up: {self}")

    def __str__(self) -> str:
        lines = [f"{self.source}: {self.rows_read} rows read, {self.kept} jobs kept"]
        lines += [f"  {n} of {self.rows_read} rows dropped: {why}" for why, n in self.dropped.items()]
        if self.censored:
            lines.append(
                f"  {self.censored} rows end with the trace: their true run time is longer (censored)"
            )
        lines += [f"  note: {text}" for text in self.warnings]
        if self.impossible:
            lines.append(f"  {len(self.impossible)} jobs can never run on this cluster and are left out:")
            lines += [f"    {job.job}: {job.reason}" for job in self.impossible]
        if self.offered_load:
            shares = ", ".join(f"{model} {float(load):.3f}" for model, load in self.offered_load.items())
            lines.append(f"  offered load per GPU model (demand / capacity): {shares}")
        return "\n".join(lines)
