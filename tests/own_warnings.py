"""Which warnings fail a test: those raised at a line of ours, and those that only a program of ours can cause.

What other packages say to each other (a deprecation inside a dependency's new release) is shown and fails nothing.
"""

from __future__ import annotations

import re
import warnings
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "jaxsched"
OURS = r"(jaxsched|tests|__main__)(\.|$)"  # of the module that the warning is attributed to
# Wherever they are raised, these are about our numbers (NumPy) or our compiled programs (JAX).
NUMERIC = (
    "divide by zero encountered",
    "invalid value encountered",
    "overflow encountered",
    "underflow encountered",
    "Mean of empty slice",
    "Degrees of freedom <= 0",
    "All-NaN",
)
PROGRAMS = (
    "Some donated buffers were not usable",
    "Explicitly requested dtype",
    "scatter inputs have incompatible types",
)

PYTEST_FILTERS = (
    *(f"error:{re.escape(text)}:RuntimeWarning" for text in NUMERIC),
    *(f"error:{re.escape(text)}" for text in PROGRAMS),
    f"error:::{OURS}",
)

# The same rule for a notebook: a cell that its first code cell ends with.
CELL = f"""
import warnings
for text in {[re.escape(text) for text in (*NUMERIC, *PROGRAMS)]}:
    warnings.filterwarnings("error", text)
warnings.filterwarnings("error", module={OURS!r})
"""


def command_filters() -> str:
    """The same rule as ``PYTHONWARNINGS``, which knows no patterns: one entry for each module of the package."""
    modules = [".".join(p.relative_to(PACKAGE.parent).with_suffix("").parts) for p in PACKAGE.rglob("*.py")]
    modules = ["__main__", *(name.removesuffix(".__init__") for name in modules)]
    texts = [f"error:{text}:RuntimeWarning" for text in NUMERIC] + [f"error:{text}" for text in PROGRAMS]
    return ",".join(["default", *texts, *(f"error:::{name}" for name in modules)])


def pass_on(stderr: str) -> str:
    """What a command wrote beside warnings; these are raised anew here, where pytest's summary shows them."""
    shown = r"^(?P<file>\S.*):(?P<line>\d+): (?P<kind>\w*Warning): (?P<text>.*)\n(?:  .*\n)?"
    for found in re.finditer(shown, stderr, re.M):
        text = f"in a command: {found['kind']}: {found['text']}"
        warnings.warn_explicit(text, UserWarning, found["file"], int(found["line"]), module="a_command")
    return re.sub(shown, "", stderr, flags=re.M)
