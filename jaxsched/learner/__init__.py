"""The learner: a graph network trained by Double-DQN inside the simulator's own program."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jaxsched.learner.ddqn import LearnerConfig
    from jaxsched.learner.training import make_train

__all__ = ["LearnerConfig", "make_train"]

_HOMES = {"LearnerConfig": "jaxsched.learner.ddqn", "make_train": "jaxsched.learner.training"}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'jaxsched.learner' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)
