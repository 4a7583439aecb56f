"""A warning fails a test when it is ours, and only then: here, in started commands, and in notebooks."""

import os
import subprocess
import sys
import warnings

import numpy as np
import pytest

from tests import own_warnings

# "there" is a package of somebody else, "here" the module of ours that calls it.
THEIRS = "import warnings\ndef inside(): warnings.warn('made up', DeprecationWarning)\n" + (
    "def asked(): warnings.warn('made up', DeprecationWarning, stacklevel=2)\n"
)
NUMBERS = "import numpy\ndef divide(): return numpy.float64(1) / numpy.float64(0)\n"
FAILS = {"made_up.inside()": False, "made_up.asked()": True, "made_up.divide()": True}


@pytest.fixture
def made_up(tmp_path, monkeypatch):
    """A folder with a third-party module, importable."""
    (tmp_path / "made_up.py").write_text(THEIRS + NUMBERS)
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    sys.modules.pop("made_up", None)


def line_of_ours(call: str) -> str:
    """A program in which a line of the module ``jaxsched.simulate`` makes ``call``."""
    return f"exec({f'import made_up; {call}'!r}, {{'__name__': 'jaxsched.simulate'}})"


@pytest.mark.parametrize(("call", "fails"), FAILS.items())
def test_in_a_test(made_up, call, fails):
    if fails:
        with pytest.raises((DeprecationWarning, RuntimeWarning), match=r"made up|divide by zero"):
            exec(line_of_ours(call))
    else:
        exec(line_of_ours(call))


@pytest.mark.parametrize(("call", "fails"), FAILS.items())
def test_in_a_started_command(made_up, call, fails):
    environment = os.environ | {
        "PYTHONPATH": str(made_up),
        "PYTHONWARNINGS": own_warnings.command_filters(),
    }
    line = [sys.executable, "-c", line_of_ours(call)]
    answer = subprocess.run(line, capture_output=True, text=True, env=environment)
    assert (answer.returncode != 0) == fails, answer.stderr
    if not fails:
        with pytest.warns(UserWarning, match="in a command: DeprecationWarning: made up"):
            assert own_warnings.pass_on(answer.stderr) == ""


@pytest.mark.parametrize(("call", "fails"), FAILS.items())
def test_in_a_notebook(made_up, call, fails):
    with warnings.catch_warnings():
        warnings.resetwarnings()
        exec(own_warnings.CELL, {})
        if fails:
            with pytest.raises((DeprecationWarning, RuntimeWarning)):
                exec(line_of_ours(call))
        else:
            exec(line_of_ours(call))


def test_what_a_command_says_beside_warnings_is_kept():
    stderr = "error: no such file\n/lib/x.py:3: FutureWarning: soon\n  x = 1\nprogress 3 %\n"
    with pytest.warns(UserWarning, match="FutureWarning: soon"):
        assert own_warnings.pass_on(stderr) == "error: no such file\nprogress 3 %\n"


def test_numbers_of_our_own_fail_too():
    with pytest.raises(RuntimeWarning, match="Mean of empty slice"):
        np.mean(np.zeros(0))
