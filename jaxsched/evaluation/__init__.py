"""Running policies on the same jobs, and saying honestly how they differ."""

from jaxsched.evaluation.compare import compare_policies
from jaxsched.evaluation.metrics import schedule_metrics
from jaxsched.evaluation.replay import Replay, replay

__all__ = ["Replay", "compare_policies", "replay", "schedule_metrics"]
