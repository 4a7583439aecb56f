"""What holds for every test."""

from __future__ import annotations

import jax
import pytest


@pytest.fixture(scope="module", autouse=True)
def forget_compiled_programs():
    """Drop a module's compiled programs at its end.

    Each program holds a few memory maps, and Linux allows a process 65530: with more than that a compilation dies.
    """
    yield
    jax.clear_caches()
