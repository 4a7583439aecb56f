"""Power draw of a device by GPU model: (watts untouched, watts in use).

T4, A10, P100, V100 and A100 as in the PWR scheduler's table, where G2 counts as A10 and G3 as A100.
K80: data sheet, 300 W for a board of two GPUs; its idle power is taken as a tenth, like P100's.
Unlisted models are unknown: (0, 0).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

WATTS = {
    "K80": (15, 150),
    "T4": (10, 70),
    "P100": (25, 250),
    "V100": (30, 300),
    "V100M16": (30, 300),
    "V100M32": (30, 300),
    "A10": (30, 150),
    "G2": (30, 150),
    "A100": (50, 400),
    "G3": (50, 400),
}


def power_table(models: Sequence[str], size: int) -> np.ndarray:
    """f32[size, 2] watts of the model columns, 0 for unknown models and beyond them."""
    table = np.zeros((size, 2), dtype=np.float32)
    table[: len(models)] = [WATTS.get(model, (0, 0)) for model in models]
    return table
