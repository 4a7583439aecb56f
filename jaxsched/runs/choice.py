"""Policies by the names and files that a user gives on the command line."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from jaxsched.errors import InputError
from jaxsched.policies.library import get_policy, list_policies


def choose_policies(
    names: Sequence[str],
    checkpoint: str | None = None,
    module: str | None = None,
    scenario: str | None = None,
) -> dict[str, tuple[Any, Any]]:
    """name -> (policy, policy_params), in the given order; ``all`` stands for every known name.

    ``module`` (a dotted name or a .py file) is imported first: it registers the user's own policies.
    ``scenario`` is the one whose shipped weights ``index`` takes when ``checkpoint`` is no file of weights.
    Raises InputError for unknown names and files.
    """
    load_module(module)
    wanted = [each for name in names for each in (list_policies() if name == "all" else [name])]
    return {name: _resolve(name, checkpoint, scenario) for name in wanted}


def _resolve(name: str, checkpoint: str | None, scenario: str | None) -> tuple[Any, Any]:
    if name == "gnn":
        return trained_network(checkpoint)
    if name == "index":
        return tuned_index(checkpoint, scenario)
    policy = get_policy(name)
    return policy, policy.default_params


def definitions() -> dict[str, str]:
    """Every name that can be given, with its definition; ``all`` stands for those that need no file."""
    from jaxsched.learner import agent, index

    return {**list_policies(), "index": index.DEFINITION, "gnn": agent.DEFINITION}


def trained_network(checkpoint: str | None) -> tuple[Any, Any]:
    """The policy ``gnn`` of a training run's folder: its best weights on validation."""
    from jaxsched.config import fill, read_yaml
    from jaxsched.learner.agent import gnn_policy, weights_like
    from jaxsched.learner.networks import NetworkConfig
    from jaxsched.runs import checkpoint as checkpoints

    if checkpoint is None:
        raise InputError("the policy gnn needs --checkpoint DIR, the folder of a training run")
    folder = Path(checkpoint)
    settings = read_yaml(folder / "config.yaml").get("learner", {}).get("network", {})
    config = fill(NetworkConfig, settings, f"{folder / 'config.yaml'}: learner.network")
    weights, _ = checkpoints.restore(folder, "best", weights_like(config))
    return gnn_policy(config, weights), weights


def tuned_index(checkpoint: str | None, scenario: str | None) -> tuple[Any, Any]:
    """The policy ``index`` with the weights of a file that ``tune`` wrote, else with those shipped for a scenario."""
    from jaxsched.learner.index import index_policy
    from jaxsched.runs.tuning import read_index, shipped_index

    path = (
        Path(checkpoint) if checkpoint is not None and Path(checkpoint).is_file() else shipped_index(scenario)
    )
    policy = index_policy(np.array(read_index(path).weights))
    return policy, policy.default_params


def load_module(module: str | None) -> None:
    """Imports a module by dotted name (the current folder is on the path) or by file."""
    if module is None:
        return
    file = Path(module)
    try:
        if file.suffix == ".py":
            spec = importlib.util.spec_from_file_location(file.stem, file)
            assert spec is not None and spec.loader is not None
            loaded = importlib.util.module_from_spec(spec)
            sys.modules[file.stem] = loaded
            spec.loader.exec_module(loaded)
        else:
            sys.path.insert(0, str(Path.cwd()))
            importlib.import_module(module)
    except (FileNotFoundError, ModuleNotFoundError) as error:
        raise InputError(f"--policy-module {module}: {error}") from error
