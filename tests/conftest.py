"""What holds for every test."""

from __future__ import annotations

import os
import shutil
import tempfile

import jax
import pytest

from tests.own_warnings import PYTEST_FILTERS

CACHE = "JAX_COMPILATION_CACHE_DIR"


def pytest_configure(config):
    """Our own warnings are errors; one cache of compiled programs serves workers, modules and started commands."""
    for line in PYTEST_FILTERS:
        config.addinivalue_line("filterwarnings", line)
    if CACHE not in os.environ:
        folder = os.environ[CACHE] = tempfile.mkdtemp(prefix="jaxsched-tests-")
        config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))
    jax.config.update("jax_compilation_cache_dir", os.environ[CACHE])


@pytest.fixture(scope="module", autouse=True)
def forget_compiled_programs():
    """Drop a module's compiled programs at its end.

    Each program holds a few memory maps, and Linux allows a process 65530: with more than that a compilation dies.
    """
    yield
    jax.clear_caches()
