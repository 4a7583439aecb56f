"""The one exception for wrong user input, and the hint that goes with a misspelt name."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class InputError(ValueError):
    """Wrong input from the user: one line that says what, where and what was found.

    Entry points print the message and leave with status 2; anything else is our fault (status 1).
    """


def nearest(name: str, options: Iterable[str]) -> str:
    """A hint for a misspelt ``name``: the nearest option, or all of them when none is near."""
    known = sorted(options)
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    return f"did you mean {close[0]!r}?" if close else f"known: {', '.join(known)}"
