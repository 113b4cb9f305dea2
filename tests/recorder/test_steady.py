"""The recorded step is the first that repeats, and what a step replaces is released when it does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from tensortide import capture, timeline
from tensortide.graph.model import Graph
from tensortide.recorder import building
from tensortide.recorder.building import record
from tensortide.recorder.recording import Recording

Step = Callable[[], object]
MIB = 1 << 20


def growth(graph: Graph) -> list[str]:
    """The assumptions of a step that does not repeat."""
    return [text for text in graph.meta.assumptions if "repeat" in text]


def trained(optimizer: str) -> Step:
    model, x = nn.Linear(256, 256, bias=False), torch.randn(4, 256)
    update = getattr(torch.optim, optimizer)(model.parameters(), lr=1e-3)

    def step() -> object:
        update.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        update.step()
        return loss

    return step


@pytest.mark.parametrize("optimizer", ["SGD", "Adam"])
def test_an_ordinary_step_is_recorded_once(optimizer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    records: list[Graph] = []

    def noted(*args: Any, **options: Any) -> Graph:
        records.append(record(*args, **options))
        return records[-1]

    monkeypatch.setattr(building, "record", noted)
    assert not growth(capture(lambda: trained(optimizer)))
    assert len(records) == 1


def test_a_cache_that_a_step_makes_longer_is_released_when_it_is_replaced() -> None:
    def workload() -> Step:
        caches, new = [torch.randn(1, 1000, 64) for _ in range(4)], torch.randn(1, 1, 64)

        def step() -> None:
            for i, cache in enumerate(caches):
                caches[i] = torch.cat([cache, new], 1)
                del cache  # the loop variable would keep the last one

        return step

    graph = capture(workload)
    rows = timeline(graph).peak_bytes // (64 * 4)
    first = next(each.nbytes for each in graph.storages if each.name == "caches[0]") // (64 * 4)
    assert rows == 4 * first + 1 + (first + 1) + 3  # three are longer by a row already, and one has its copy beside it
    assert growth(graph) == [
        "no step repeats the one before: of 4, the last is recorded. Each step grows caches by 1.00 KiB"
    ]


def test_the_history_of_l_bfgs_grows_and_is_named() -> None:
    (said,) = growth(capture(lbfgs))
    assert "weight.old_dirs by 16.00 KiB, weight.old_stps by 16.00 KiB" in said


def test_state_that_is_built_anew_once_is_not_in_the_recorded_step() -> None:
    def workload() -> Step:
        buffers, calls = [torch.zeros(MIB // 4)], [0]

        def step() -> torch.Tensor:
            calls[0] += 1
            if calls[0] == 2:  # both are resident together
                buffers.append(torch.zeros(MIB // 4))
                del buffers[0]
            return buffers[0].sum()

        return step

    graph = capture(workload)
    assert MIB <= timeline(graph).peak_bytes < MIB + 1024
    assert not growth(graph)


def test_a_list_that_grows_is_named_and_losses_are_not_growth() -> None:
    def workload() -> Step:
        means: list[torch.Tensor] = []
        losses: list[torch.Tensor] = []
        weights = torch.ones(1000)

        def step() -> None:
            means.append(weights * 0.9)
            losses.append(weights.sum())

        return step

    (said,) = growth(capture(workload))
    assert said.endswith("Each step grows means by 3.91 KiB")


def test_a_step_that_cannot_run_again_keeps_its_record() -> None:
    def workload() -> Step:
        means: list[torch.Tensor] = []
        batches = iter([torch.ones(1000), torch.ones(1000)])
        return lambda: means.append(next(batches) * 2)

    (said,) = growth(capture(workload))
    assert said.startswith("no step repeats the one before: another one fails (StopIteration")


# -- loops that run ---------------------------------------------------------------------------------


def recorded(step: Step, passes: int, number: int | None = None) -> tuple[Graph, int]:
    """The Graph of a loop of ``step``, and the number of passes after which it was recorded."""
    over = passes
    with Recording(number) as recording:
        for i in range(passes):
            step()
            if recording.done:
                over = min(over, i + 1)
    return recording.graph, over


def lbfgs(history: int = 20) -> Step:
    model, x = nn.Linear(64, 64, bias=False), torch.randn(4, 64)
    update = torch.optim.LBFGS(model.parameters(), history_size=history, max_iter=1)

    def closure() -> torch.Tensor:
        update.zero_grad()
        loss: torch.Tensor = model(x).square().mean()
        loss.backward()
        return loss

    return lambda: update.step(closure)


def test_an_ordinary_loop_is_recorded_in_its_second_step() -> None:
    graph, over = recorded(trained("Adam"), 5)
    assert over == 2
    assert not growth(graph)


@pytest.mark.parametrize(
    ("passes", "why"), [(2, "no other was recorded"), (3, "of 2, the last is"), (9, "of 4, the last is")]
)
def test_a_loop_whose_state_grows_is_recorded_where_it_ends_or_after_a_few(passes: int, why: str) -> None:
    graph, over = recorded(lbfgs(), passes)
    assert over == min(passes, 5)
    (said,) = growth(graph)
    assert why in said
    assert "weight.old_dirs by 16.00 KiB" in said


def test_a_history_that_is_full_does_not_grow() -> None:
    graph, over = recorded(lbfgs(history=2), 9)
    assert over < 6
    assert not growth(graph)
    names = {each.name for each in graph.named if "old_" in each.name}
    assert len(names) == 4  # two of each


def test_a_step_that_is_asked_for_by_number_is_recorded() -> None:
    graph, over = recorded(lbfgs(), 5, 3)
    assert over == 3
    assert not growth(graph)


def test_buckets_that_a_loop_builds_anew_are_not_in_the_recorded_step() -> None:
    model, x, calls = nn.Linear(512, 512, bias=False), torch.randn(4, 512), 0
    update, bucket = torch.optim.SGD(model.parameters(), lr=0.1), torch.zeros(512 * 512)
    model.weight.grad = bucket.view(512, 512)

    def step() -> None:
        nonlocal calls, bucket
        calls += 1
        if calls == 2:
            bucket = torch.zeros(512 * 512)
            model.weight.grad = bucket.view(512, 512)
        update.zero_grad(set_to_none=False)
        model(x).square().mean().backward()
        update.step()

    graph, over = recorded(step, 6)
    assert over == 3
    assert not growth(graph)
    assert 3 * MIB <= timeline(graph).peak_bytes < 3 * MIB + 64 * 1024  # weight, gradient, and one that is added to it
