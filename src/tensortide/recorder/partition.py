"""PyTorch's min-cut partitioner on a captured step: which storages it saves for the backward pass, by memory budget."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from tensortide.errors import PlanError, TorchUnavailable
from tensortide.graph.model import Graph
from tensortide.recorder.joint_graph import STORAGE, TANGENT, joint_graph, passes
from tensortide.recorder.torch_compat import VERSION, partitioner

_FAILURES = (ArithmeticError, AssertionError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)
"""Errors that the partitioner, or an op of which it counts the FLOPs, may raise."""


class Partition(NamedTuple):
    """Storages that the forward pass saves under the memory budget ``setting``, a part from 0 to 1 of what it saves by
    default: for each backward pass, by the number of its first op. ``forward``: the ops before it, from that number
    on."""

    setting: float
    saved: Mapping[int, frozenset[int]]
    forward: Mapping[int, int]


class Partitioner:
    """PyTorch's partitioner on each pair of passes of a graph, its loops written out; every op is a node of its own.

    Raises PlanError for a step without a backward pass, and where the partitioner fails.
    """

    def __init__(self, graph: Graph) -> None:
        self._min_cut, self._settings = partitioner()
        if self._min_cut is None or not hasattr(self._settings, "activation_memory_budget"):
            raise TorchUnavailable(f"the partitioner of PyTorch {'.'.join(map(str, VERSION))} takes no memory budget")
        pairs = passes(graph)
        if not pairs:
            raise PlanError("the step has no backward pass")
        with _failing():
            # the partitioner leaves what is in a joint graph as it is, so that one serves all settings
            self._joints = {pair: joint_graph(graph, pair) for pair in pairs}

    def partition(self, setting: float) -> Partition:
        """Partition as ``torch.compile`` would with ``torch._functorch.config.activation_memory_budget`` at
        ``setting``."""
        known = inspect.signature(self._min_cut).parameters
        saved = {}
        for pair, joint in self._joints.items():
            how = {"num_fwd_outputs": joint.results, "static_lifetime_input_indices": joint.static}
            with _failing(), self._settings.patch(activation_memory_budget=setting, cse=False):
                _, backward = self._min_cut(joint.module, (), **{k: v for k, v in how.items() if k in known})
            inputs = [node for node in backward.graph.nodes if node.op == "placeholder" and TANGENT not in node.name]
            saved[pair.middle] = frozenset(node.meta[STORAGE] for node in inputs)
        return Partition(setting, saved, {pair.middle: pair.begin for pair in self._joints})


@contextlib.contextmanager
def _failing() -> Iterator[None]:
    try:
        yield
    except _FAILURES as error:
        raise PlanError(f"it fails: {(str(error) or type(error).__name__).splitlines()[0]}") from error
