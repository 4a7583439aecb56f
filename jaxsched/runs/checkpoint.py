"""Checkpoints of a run (orbax): ``latest`` with everything, ``best`` and ``final`` with the acting weights.

Each kind keeps one version and is atomic: the new one is complete on disk before the old one goes.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from jaxsched.errors import InputError

KINDS = ("latest", "best", "final")


def _manager(folder: Path) -> Any:
    import orbax.checkpoint as ocp

    logging.getLogger("absl").setLevel(logging.ERROR)  # orbax reports every step of a save
    options = ocp.CheckpointManagerOptions(max_to_keep=1, enable_async_checkpointing=False)
    return ocp.CheckpointManager(folder.absolute(), options=options)


def save(run: Path, kind: str, step: int, tree: Any, notes: dict[str, Any]) -> None:
    """Writes ``tree`` and the JSON ``notes`` as the run's checkpoint of ``kind``; replaces an older one."""
    import orbax.checkpoint as ocp

    with _manager(run / "checkpoints" / kind) as manager:
        parts = ocp.args.Composite(tree=ocp.args.StandardSave(tree), notes=ocp.args.JsonSave(notes))
        manager.save(step, args=parts, force=True)


def restore(run: Path, kind: str, like: Any) -> tuple[Any, dict[str, Any]]:
    """``(tree, notes)`` of the run's checkpoint of ``kind``; ``like`` gives the tree's structure, shapes and types.

    Raises InputError when there is none.
    """
    import orbax.checkpoint as ocp

    folder = run / "checkpoints" / kind
    if not folder.is_dir():
        raise InputError(f"{run}: no checkpoint {kind!r} here (expected {folder})")
    with _manager(folder) as manager:
        step = manager.latest_step()
        if step is None:
            raise InputError(f"{folder}: no finished checkpoint here")
        parts = ocp.args.Composite(tree=ocp.args.StandardRestore(like), notes=ocp.args.JsonRestore())
        restored = manager.restore(step, args=parts)
    return restored.tree, restored.notes


def has(run: Path, kind: str) -> bool:
    """Is there a checkpoint of ``kind``?"""
    return any((run / "checkpoints" / kind).glob("[0-9]*"))
