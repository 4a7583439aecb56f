"""Exact times and the choice of the tick."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxsched.errors import InputError
from jaxsched.workloads import times


@pytest.mark.parametrize("text", ["100", "100.0", "1e2", "+100", "1.00e2", " 100 ", "10000e-2"])
def test_number_formats_of_one_hundred(text: str) -> None:  # TR-17
    values = times.parse_exact([text], "arrival_s", "f.csv")
    assert values.dtype == np.int64 and values.tolist() == [100]


@pytest.mark.parametrize("text", ["1,000", "", "nan", "inf", "1_000", "0x10", "12:30", "1e999", "\u0661"])
def test_other_texts_are_refused_with_row_and_column(text: str) -> None:  # TR-17
    with pytest.raises(InputError, match=r"f\.csv: row 2, column 'arrival_s'"):
        times.parse_exact(["5", text], "arrival_s", "f.csv")


def test_fractions_stay_exact() -> None:
    values = times.parse_exact(["1596240000.25", "0.1"], "arrival_s", "f.csv")
    assert values.tolist() == [Fraction(6384960001, 4), Fraction(1, 10)]


def test_whole_columns_refuse_parts_and_giants() -> None:
    assert times.parse_whole(["8", "8.0"], "num_gpu", "f.csv").tolist() == [8, 8]
    with pytest.raises(InputError, match=r"row 1, column 'num_gpu': '0.5' is not a whole number"):
        times.parse_whole(["0.5"], "num_gpu", "f.csv")
    with pytest.raises(InputError, match="below 2"):
        times.parse_whole(["1e30"], "num_gpu", "f.csv")


@pytest.mark.parametrize(
    ("denominator", "span_s", "tick", "exact"),
    [
        (1, Fraction(100), Fraction(1), True),
        (2, Fraction(100), Fraction(1, 10), True),
        (4, Fraction(100), Fraction(1, 100), True),
        (1000, Fraction(100), Fraction(1, 1000), True),
        (3, Fraction(100), Fraction(1, 1000), False),  # thirds are whole in no tick
        (4, Fraction(2**30, 100), Fraction(1, 10), False),  # hundredths would reach 2^30 ticks
        (1, Fraction(2**30) - 1, Fraction(1), True),
    ],
)
def test_tick_choice(denominator: int, span_s: Fraction, tick: Fraction, exact: bool) -> None:
    assert times.choose_tick(denominator, span_s) == (tick, exact)


def test_a_span_of_2_30_seconds_is_refused() -> None:
    with pytest.raises(InputError, match="another unit"):
        times.choose_tick(1, Fraction(2**30))


def test_rounding_where_no_tick_is_exact() -> None:
    values = times.parse_exact(["0.0006", "0.0005", "0.0004", "0", "1.0004"], "duration_s", "f.csv")
    tick = Fraction(1, 1000)
    assert times.floor_ticks(values, tick).tolist() == [0, 0, 0, 0, 1000]
    assert times.nearest_ticks(values, tick).tolist() == [1, 1, 1, 0, 1000]  # positive: at least one tick


@given(
    st.lists(st.integers(0, 10**9), min_size=1, max_size=5),
    st.fractions(min_value=Fraction(1, 1000), max_value=1000),
)
def test_scaled_arrivals_are_exact_floors(arrivals: list[int], factor: Fraction) -> None:
    scaled = times.scaled_floor_ticks(np.array(arrivals), factor, Fraction(1, 10))
    assert scaled.tolist() == [int(a * factor * 10 // 1) for a in arrivals]
