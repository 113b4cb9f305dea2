"""Plans known before any search: checkpoints of repeated modules."""

from __future__ import annotations

import pytest
import torch
from torch.utils.checkpoint import checkpoint

from tensortide import capture
from tensortide.graph.model import Graph
from tensortide.plans.remat.schedule import recorded
from tensortide.plans.under_budget.sequence import Evaluated, evaluate
from tensortide.studies.planning.known import as_recorded, in_recorded_order, per_block, static
from tensortide.studies.planning.problem import Problem


class Net(torch.nn.Module):
    def __init__(self, wrap: bool) -> None:
        super().__init__()
        block = torch.nn.Sequential
        parts = [block(torch.nn.Linear(64, 64), torch.nn.BatchNorm1d(64), torch.nn.Tanh()) for _ in range(4)]
        self.blocks = torch.nn.ModuleList(parts)
        self.wrap = wrap

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            result = checkpoint(block, x, use_reentrant=False) if self.wrap else block(x)
            assert isinstance(result, torch.Tensor)
            x = result
        return x


def step_of(wrap: bool) -> Graph:
    def workload(batch: int = 256):  # type: ignore[no-untyped-def]
        net, data = Net(wrap), torch.randn(batch, 64)

        def step() -> torch.Tensor:
            loss: torch.Tensor = net(data).square().mean()
            loss.backward()
            return loss

        return step

    return capture(workload)


def played(graph: Graph, name: str) -> Evaluated:
    device = graph.index.main_device
    problem = Problem(recording=recorded(graph, [1] * len(graph)), device=device, budget_bytes=1 << 40)
    found = {known.name: known for known in (*as_recorded(problem), *per_block(problem))}
    sequence = found[name].sequence
    assert sequence is not None
    return evaluate(problem.instance, problem.tables, sequence, free=False)


def test_blocks_run_again_as_under_checkpoint() -> None:
    plain = step_of(wrap=False)
    found, whole = played(plain, "checkpoint blocks.*"), played(plain, "as recorded")
    by_hand = played(step_of(wrap=True), "as recorded")
    assert found.peak_bytes < whole.peak_bytes
    assert found.peak_bytes == pytest.approx(by_hand.peak_bytes, rel=0.05)


def test_counters_of_batches_are_not_counted_twice() -> None:
    graph = step_of(wrap=False)
    again = played(graph, "checkpoint blocks.*").sequence.tolist()
    repeated = {graph[op].name for op in again if again.count(op) > 1}
    assert "aten.native_batch_norm.default" in repeated or any("batch_norm" in name for name in repeated)
    assert not any(name.startswith("aten.add_") for name in repeated)


def test_static_plans_of_a_captured_step_run_its_ops_in_recorded_order() -> None:
    graph = step_of(wrap=False)
    device = graph.index.main_device
    problem = Problem(recording=recorded(graph, [1] * len(graph)), device=device, budget_bytes=1 << 40)
    chen = [known for known in static(problem) if known.name.startswith("Chen greedy") and known.sequence]
    peaks = [evaluate(problem.instance, problem.tables, known.sequence or [], free=False).peak_bytes for known in chen]
    assert len(chen) > 2
    assert min(peaks) < problem.recorded_peak_bytes


def test_first_runs_that_come_early_are_put_off() -> None:
    assert in_recorded_order([0, 2, 1, 0, 4, 3, 4]) == [0, 1, 2, 0, 3, 4, 4]
