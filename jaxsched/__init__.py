"""jaxsched: a simulator of heterogeneous GPU clusters in JAX, and schedulers for them.

Everything here is loaded on first use, so that ``import jaxsched`` is quick and starts no device.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jaxsched.evaluation.replay import replay
    from jaxsched.policies.library import list_policies, register_policy
    from jaxsched.sim.env import make

__version__ = "0.1.0"
__all__ = ["__version__", "list_policies", "make", "register_policy", "replay"]

_HOMES = {
    "list_policies": "jaxsched.policies.library",
    "make": "jaxsched.sim.env",
    "register_policy": "jaxsched.policies.library",
    "replay": "jaxsched.evaluation.replay",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'jaxsched' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
