"""Exact numbers from decimal text, and the tick: the unit in which every time of a pool is an integer.

An exact column is either an int64 array (every value whole: the fast path) or an object array of
``Fraction``. Floats never hold a time, so neither the origin of a trace nor its length costs precision.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from fractions import Fraction

import numpy as np

from jaxsched.errors import InputError

TICKS = (Fraction(1), Fraction(1, 10), Fraction(1, 100), Fraction(1, 1000))  # seconds, coarsest first
TICK_LIMIT = 2**30  # last arrival + longest run time must stay below this many ticks
_WHOLE_LIMIT = 2**53  # larger whole numbers stay Fractions, so that int64 arithmetic on them cannot wrap
_WHOLE = re.compile(r"[+-]?[0-9]{1,15}")
_DECIMAL = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]{1,2})?")


def parse_exact(
    text: Sequence[str], column: str, source: str, rows: Iterable[int] | None = None
) -> np.ndarray:
    """Exact values of decimal texts such as ``100``, ``100.25`` or ``1e2``.

    ``rows`` are the data row numbers (from 1) that an error names; default 1, 2, ...
    Raises ``InputError`` naming row and column for anything else (``1,000``, ``nan``, blank).
    """
    if all(map(_WHOLE.fullmatch, text)):
        return np.array([int(t) for t in text], dtype=np.int64)
    numbers = range(1, len(text) + 1) if rows is None else rows
    for row, t in zip(numbers, text, strict=True):
        if not _DECIMAL.fullmatch(t.strip()):
            raise InputError(f"{source}: row {row}, column {column!r}: {t!r} is not a number")
    return exact_array([Fraction(t.strip()) for t in text])


def exact(value: Fraction | int | np.integer) -> Fraction:
    """A Fraction of Python ints: one made from a NumPy integer would overflow in its arithmetic."""
    return Fraction(int(value)) if isinstance(value, np.integer) else Fraction(value)


def exact_array(values: Sequence[Fraction | int]) -> np.ndarray:
    """int64 when every value is whole and moderate, else an object array of Fractions."""
    fractions = [exact(v) for v in values]
    if all(f.denominator == 1 and abs(f.numerator) < _WHOLE_LIMIT for f in fractions):
        return np.array([f.numerator for f in fractions], dtype=np.int64)
    column = np.empty(len(fractions), dtype=object)
    column[:] = fractions
    return column


def parse_whole(
    text: Sequence[str], column: str, source: str, rows: Iterable[int] | None = None
) -> np.ndarray:
    """int64 values of texts that must be whole numbers (``8`` and ``8.0`` are, ``0.5`` is not)."""
    values = parse_exact(text, column, source, rows)
    if values.dtype == np.int64:
        return values
    numbers = range(1, len(text) + 1) if rows is None else rows
    row, t = next((r, t) for r, t, v in zip(numbers, text, values, strict=True) if not _is_moderate_whole(v))
    raise InputError(f"{source}: row {row}, column {column!r}: {t!r} is not a whole number below 2^53")


def _is_moderate_whole(value: Fraction) -> bool:
    return value.denominator == 1 and abs(value.numerator) < _WHOLE_LIMIT


def common_denominator(values: np.ndarray) -> int:
    """Least d such that every value times d is whole."""
    if values.dtype == np.int64 or not len(values):
        return 1
    return math.lcm(*{v.denominator for v in values})


def choose_tick(denominator: int, span_s: Fraction) -> tuple[Fraction, bool]:
    """The tick in seconds for times that are whole in 1/``denominator`` s and reach ``span_s``.

    Returns (tick, exact). Coarsest tick in which all is whole and the span is below 2^30 ticks; where there
    is none, the finest tick that keeps the span below 2^30, and ``exact`` is False.
    """
    fitting = [tick for tick in TICKS if span_s < TICK_LIMIT * tick]
    if not fitting:
        raise InputError(
            f"times reach {float(span_s):.6g} s after the first arrival, more than 2^30 ticks of 1 s: "
            "are they in another unit, or does the window need to be cut?"
        )
    for tick in fitting:
        if tick.denominator % denominator == 0:
            return tick, True
    return fitting[-1], False


def floor_ticks(values: np.ndarray, tick: Fraction) -> np.ndarray:
    """int64 ticks, rounded down."""
    if values.dtype == np.int64:
        return values * tick.denominator // tick.numerator
    return np.array([math.floor(v / tick) for v in values], dtype=np.int64)


def nearest_ticks(values: np.ndarray, tick: Fraction) -> np.ndarray:
    """int64 ticks, rounded to nearest (half up); a positive time stays at least one tick."""
    if values.dtype == np.int64 and tick.numerator == 1:
        return values * tick.denominator
    ticks = [math.floor(Fraction(v) / tick + Fraction(1, 2)) for v in values.tolist()]
    return np.array([max(t, int(v > 0)) for t, v in zip(ticks, values, strict=True)], dtype=np.int64)


def scaled_floor_ticks(values: np.ndarray, factor: Fraction, tick: Fraction) -> np.ndarray:
    """int64 ticks of ``values * factor``, rounded down: compressed arrivals."""
    whole_factor = factor / tick
    over, under = whole_factor.numerator, whole_factor.denominator
    if values.dtype == np.int64:
        return np.array([v * over // under for v in values.tolist()], dtype=np.int64)
    return np.array([math.floor(v * whole_factor) for v in values], dtype=np.int64)
