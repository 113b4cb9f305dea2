"""Part of written files: a policy that keeps the results of some ops of a checkpointed module."""

from __future__ import annotations

from collections import Counter
from typing import Any

import torch
from torch.utils.checkpoint import CheckpointPolicy, create_selective_checkpoint_contexts

from tensortide.recorder.torch_file.applied import Applied

CHECKPOINTS: dict[str, tuple[bool, tuple[str, ...], tuple[str, ...]]] = {}
KEPT: dict[str, set[tuple[str, str, int]]] = {}

# -- copied into files --


class Policy:
    """Keeps results of ops of the module at ``path``: (module, op, how often the op ran in this module before)."""

    def __init__(self, path: str, kept: set[tuple[str, str, int]]) -> None:
        self.path, self.kept = path, kept
        self.running: list[str] = []

    def contexts(self) -> Any:
        """The contexts of one forward pass and of its recomputation."""
        runs: Counter[tuple[bool, str, str]] = Counter()

        def policy(context: Any, op: Any, *args: Any, **kwargs: Any) -> CheckpointPolicy:
            name = self.running[-1] if self.running else self.path
            at = (context.is_recompute, name, str(op))
            runs[at] += 1
            is_kept = (name, str(op), runs[at] - 1) in self.kept
            return CheckpointPolicy.MUST_SAVE if is_kept else CheckpointPolicy.PREFER_RECOMPUTE

        return create_selective_checkpoint_contexts(policy)


def policies_of(model: torch.nn.Module, prefix: str, applied: Applied) -> dict[str, Any]:
    """By path, the contexts of each module of ``model`` of which the table keeps results."""
    found = {}
    for path, kept in KEPT.items():
        if f"{path}.".startswith(prefix) or not prefix:
            policy = Policy(path, kept)
            for each in CHECKPOINTS[path][2] or (path,):
                modules = dict(model.get_submodule(each[len(prefix) :]).named_modules(prefix=each))
                applied.follow(modules, policy.running)
            found[path] = policy.contexts
    return found
