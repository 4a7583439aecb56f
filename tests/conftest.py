"""What holds for every test."""

from __future__ import annotations

import os
import shutil
import tempfile

import jax
import pytest

from tests.own_warnings import PYTEST_FILTERS

CACHE = "JAX_COMPILATION_CACHE_DIR"
DEAREST = {"test_readme", "test_course", "test_paired", "test_learning"}
QUICK = "JAX_DISABLE_MOST_OPTIMIZATIONS"


def pytest_configure(config):
    """Our own warnings are errors; one cache of compiled programs serves workers, modules and started commands."""
    for line in PYTEST_FILTERS:
        config.addinivalue_line("filterwarnings", line)
    if CACHE not in os.environ:
        folder = os.environ[CACHE] = tempfile.mkdtemp(prefix="jaxsched-tests-")
        config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))
    jax.config.update("jax_compilation_cache_dir", os.environ[CACHE])
    os.environ[QUICK] = "1"  # for started commands; here, fixtures decide


def pytest_collection_modifyitems(items):
    """The dearest files first: a worker that began one last would let the other wait for it."""
    items.sort(key=lambda item: item.path.stem not in DEAREST)


@pytest.fixture(scope="module", autouse=True)
def compiled_programs(request):
    """Programs are compiled quickly rather than well, but in modules that say ``OPTIMISED = True``.

    Those run long, or prove what a user's own compilation must keep. A module's programs are dropped at its end:
    each holds a few memory maps, and Linux allows a process 65530: with more than that a compilation dies.
    """
    jax.config.update("jax_disable_most_optimizations", not getattr(request.module, "OPTIMISED", False))
    yield
    jax.clear_caches()


@pytest.fixture
def optimised():
    """A single test whose programs are compiled as a user's are."""
    jax.clear_caches()
    jax.config.update("jax_disable_most_optimizations", False)
    yield
    jax.config.update("jax_disable_most_optimizations", True)
    jax.clear_caches()
