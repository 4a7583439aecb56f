"""Where the numbers of a long run go while it runs: one CSV file and the terminal."""

from __future__ import annotations

import csv
import math
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from jaxsched.errors import InputError


class MetricsFile:
    """A CSV file with a fixed header to which rows are appended, one flush a row.

    A file that exists is continued: its header must be ``columns``, and is not written again.
    """

    def __init__(self, path: str | Path, columns: Sequence[str]):
        self.path = Path(path)
        self.columns = tuple(columns)
        if self.path.is_file() and self.path.stat().st_size:
            self._check_header()
        else:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._write_rows("w", [list(self.columns)])

    def append(self, row: Mapping[str, Any]) -> None:
        """Adds a row. Missing values, None and NaN become empty cells; unknown names raise KeyError."""
        unknown = set(row) - set(self.columns)
        if unknown:
            raise KeyError(f"not a column of {self.path.name}: {sorted(unknown)}")
        self._write_rows("a", [[_cell(row.get(column)) for column in self.columns]])

    def cut_after(self, column: str, last: float) -> None:
        """Drops the rows whose ``column`` is above ``last``: they were written after the checkpoint."""
        with self.path.open(newline="") as file:
            rows = [
                [row[name] for name in self.columns]
                for row in csv.DictReader(file)
                if float(row[column]) <= last
            ]
        self._write_rows("w", [list(self.columns), *rows])

    def _check_header(self) -> None:
        with self.path.open(newline="") as file:
            header = next(csv.reader(file))
        if tuple(header) != self.columns:
            raise InputError(
                f"{self.path}: expected columns {','.join(self.columns)}, found {','.join(header)}"
            )

    def _write_rows(self, mode: str, rows: Sequence[Sequence[Any]]) -> None:
        with self.path.open(mode, newline="") as file:
            csv.writer(file, lineterminator="\n").writerows(rows)


def _cell(value: Any) -> Any:
    missing = value is None or (isinstance(value, float) and math.isnan(value))
    return "" if missing else value


class Progress:
    """A bar on a terminal; in a pipe, a plain line every ``every_s`` seconds and a last one.

    >>> with Progress(total=100, what="train") as progress:
    ...     progress.update(10, loss=0.5)
    """

    def __init__(self, total: float, what: str, every_s: float = 10.0, done: float = 0.0):
        self.total, self.what, self.every_s = total, what, every_s
        self._first, self._done, self._fields = done, done, ""
        self._bar: Any = None

    def __enter__(self) -> Progress:
        self._began = self._printed = time.monotonic()
        self._shown = self._first
        if sys.stderr.isatty():
            self._bar = _terminal_bar()
            self._bar.start()
            self._task = self._bar.add_task(self.what, total=self.total, completed=self._first, fields="")
        return self

    def update(self, done: float, **fields: Any) -> None:
        """Sets how much of ``total`` is done, and the named values that are shown beside it."""
        self._done = done
        self._fields = "  ".join(f"{name} {_short(value)}" for name, value in fields.items())
        now = time.monotonic()
        if self._bar is not None:
            self._bar.update(self._task, completed=done, fields=self._fields)
        elif now - self._printed >= self.every_s:
            self._print(now)

    def note(self, line: str) -> None:
        """Prints a line above the bar."""
        if self._bar is not None:
            self._bar.console.print(line, markup=False, highlight=False)
        else:
            print(line, file=sys.stderr, flush=True)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()
        elif self._done != self._shown:
            self._print(time.monotonic())

    def _print(self, now: float) -> None:
        worked = self._done - self._first
        left = (now - self._began) * (self.total - self._done) / worked if worked > 0 else math.nan
        share = self._done / self.total if self.total else 1.0
        ending = "" if math.isnan(left) else f"  left {max(left, 0):.0f} s"
        print(f"{self.what} {share:4.0%}  {self._fields}{ending}".rstrip(), file=sys.stderr, flush=True)
        self._printed, self._shown = now, self._done


def _terminal_bar() -> Any:
    from rich.console import Console
    from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    return Bar(
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        TaskProgressColumn(),
        TextColumn("{task.fields[fields]}"),
        TimeRemainingColumn(),
        console=Console(stderr=True),
    )


def _short(value: Any) -> str:
    if isinstance(value, str):
        return value
    number = float(value)
    return f"{number:,.0f}" if abs(number) >= 100 else f"{number:.3g}"
