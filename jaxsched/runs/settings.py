"""The settings of a training run, and what follows from them alone: its scenario, its folder, its rivals."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

from jaxsched.learner.ddqn import LearnerConfig
from jaxsched.policies.library import get_policy
from jaxsched.workloads.scenarios import Scenario, load_scenario

CLASSICAL = (
    "fifo+first_fit", "fifo+best_fit", "fifo-strict+best_fit", "fifo-easy+best_fit",
    "sjf+best_fit", "sjf-strict+worst_fit", "sjf-easy+fastest", "sjf+fastest", "sjf+fgd",
    "saf+best_fit", "saf-easy+gpu_packing", "saf+random", "wfp3+best_fit", "wfp3-easy+best_fit_vector",
    "unicep+best_fit", "unicep-strict+dot_product", "f1+best_fit", "f1-easy+gpu_clustering",
    "edf+best_fit", "edf-strict+first_fit", "saf+fastest", "wfp3+fastest", "fifo+fastest", "spt_pair",
    "spt_pair-easy",
)  # fmt: skip


@dataclass(frozen=True)
class RunConfig:
    """Everything that a training run depends on."""

    scenario: str = "hetero-8"
    seed: int = 0
    train_windows: int = 1024
    validation_windows: int = 64
    test_windows: int = 192
    evaluations: int = 12  # on validation, evenly over the run; each is a checkpoint
    reference: str = "spt_pair"
    policies: tuple[str, ...] = CLASSICAL
    learner: LearnerConfig = field(default_factory=LearnerConfig)

    def __post_init__(self) -> None:
        for name in ("train_windows", "validation_windows", "test_windows", "evaluations"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, found {getattr(self, name)}")
        for name in (*self.policies, self.reference):
            get_policy(name)
        if self.reference not in self.policies:
            raise ValueError(f"reference {self.reference!r} is not among the policies")


def named_scenario(config: RunConfig) -> Scenario:
    """The scenario of a run, under the name that the run gives it (a load after '@' included)."""
    return replace(load_scenario(config.scenario), name=config.scenario)


def default_folder(config: RunConfig) -> Path:
    """Where a run goes that names no folder."""
    return Path("outputs") / f"train-{Path(config.scenario).name.removesuffix('.yaml')}-{config.seed}"
