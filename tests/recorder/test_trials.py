"""Other values are tried for those that a step reads: whether its ops depend on them."""

from __future__ import annotations

import linecache
import math
import pickle
import sys
from typing import Any

import pytest
import torch
from torch import nn

from tensortide import capture
from tensortide.graph.model import Meta
from tensortide.recorder.trials import MOST_PLACES
from tests.recorder.steps import Step


def skipping() -> Step:
    model, x = nn.Linear(16, 4), torch.randn(8, 16)

    def step() -> None:
        loss = model(x).pow(2).mean()
        if not math.isnan(loss.item()):
            loss.backward()

    return step


def layer_of_the_largest_norm() -> Step:
    model, x = nn.Sequential(nn.Linear(16, 16), nn.Linear(16, 16)), torch.randn(8, 16)

    def step() -> None:
        norms = [p.detach().norm().item() for p in model.parameters()]
        loss = model(x).mean()
        for _ in range(norms.index(max(norms))):
            loss = loss * 2
        loss.backward()

    return step


def keeping() -> Step:
    model, x = nn.Linear(16, 16), torch.randn(8, 16)

    def step() -> None:
        large: torch.Tensor | None = torch.zeros(1 << 20)
        loss = model(x).mean()
        if loss.item() > 3:
            large = None
        other = torch.zeros(1 << 20)
        del large, other
        loss.backward()

    return step


@pytest.mark.parametrize(
    ("workload", "seen"),
    [
        (skipping, "with NaN, "),
        (layer_of_the_largest_norm, "with a larger value, "),
        (keeping, "with a larger value, the same ops with 4.0"),
    ],
)
def test_guards_orders_and_memory_that_depend_on_a_value_are_seen(workload: Any, seen: str) -> None:
    (said,) = capture(workload).meta.assumptions
    assert f"; the ops of the step depend on it: {seen}" in said


def test_a_check_of_a_library_on_its_arguments_is_not_turned() -> None:
    def dropping() -> Step:
        x = torch.randn(8, 16)
        return lambda: nn.functional.dropout(x, min(0.5, x.sum().item() / 100))

    (said,) = capture(dropping).meta.assumptions
    assert said.endswith("no other value that was tried changes the ops of the step")


def branching(kind: str = "any") -> Step:
    model, extra, x = nn.Linear(16, 4), nn.Linear(4, 64), torch.randn(8, 16)
    labels = torch.randint(0, 2, (8,))

    def more(loss: torch.Tensor, h: torch.Tensor) -> torch.Tensor:
        value, positive = loss.item(), (labels > 0).any().item()
        taken: dict[str, Any] = {
            "any": (labels > 0).any,
            "any().item()": lambda: positive,
            "item() > 0.5": lambda: value > 0.5,
            "between": lambda: 0.2 < value < 0.3,
            "not finite": lambda: not math.isfinite(value) or value > 1e9,
            "two": lambda: positive and not (h > 3).any(),
            "both": lambda: (labels > 7).any().item() and not positive,
            "reached": lambda: value > 2 and (h > 7).any(),
            "equal": lambda: torch.equal(h, h + 1),
        }
        return loss + extra(h).sum() if taken[kind]() else loss

    def step() -> None:
        h = model(x)
        more(h.pow(2).mean(), h).backward()
        model.zero_grad()
        extra.zero_grad()

    return step


@pytest.mark.parametrize(
    "kind",
    ["any", "any().item()", "item() > 0.5", "between", "not finite", "two", "both", "reached", "equal"],
)
def test_a_branch_that_another_value_takes_is_found(kind: str) -> None:
    meta = capture(branching, hyperparameters={"kind": kind}, real=False).meta
    assert any("the ops of the step depend on it: " in said for said in meta.decisive)


def test_the_number_of_rounds_that_a_value_decides_is_found() -> None:
    def workload() -> Step:
        model, x = nn.Linear(4, 4), torch.randn(2, 4)

        def step() -> None:
            y = model(x)
            for _ in range(int(x.sum().item())):
                y = y * 2
            y.sum().backward()

        return step

    (said,) = capture(workload, real=False).meta.decisive
    assert said.startswith("x.sum().item() taken as ")


def test_only_lines_that_were_tried_are_said_not_to_matter() -> None:
    model, x, steps = nn.Linear(4, 4), torch.randn(2, 4), [0]

    def once() -> None:
        steps[0] += 1
        if steps[0] == 1:
            model(x).sum().item()
        model(x).sum().backward()

    (said,) = capture(once, real=False).meta.untested
    assert said.endswith("whether the ops of the step depend on it was not checked")

    def differing() -> None:
        steps[0] += 1
        y = model(x).sum() * 2 if steps[0] % 2 else model(x).sum()
        if y > 3:
            y * 2

    (said,) = capture(differing, real=False).meta.untested
    assert said.endswith("was not checked: they differ from step to step")


def test_many_lines_are_not_all_tried_and_trials_are_few() -> None:
    x, runs = torch.randn(4), [0]
    conditions = [f"    if x.sum() > {number}: x * 2" for number in range(MOST_PLACES + 2)]
    numbers = [f"    x.max().item(), {number}" for number in range(20)]

    def captured(lines: list[str]) -> Meta:
        code = "\n".join(["def step():", "    runs[0] += 1", "    x + 1", *lines])
        linecache.cache["<lines>"] = (len(code), None, [f"{line}\n" for line in code.split("\n")], "<lines>")
        scope: dict[str, Any] = {"x": x, "runs": runs}
        exec(compile(code, "<lines>", "exec"), scope)
        runs[0] = 0
        return capture(scope["step"], real=False).meta

    meta = captured(conditions)
    assert len(meta.untested) == 2
    assert len(meta.decisive) == MOST_PLACES
    assert not captured(numbers).untested


def test_a_trial_leaves_the_user_s_numbers_plain() -> None:
    seen: list[float] = []

    def step() -> None:
        value = torch.randn(3).sum().item()
        seen.append(pickle.loads(pickle.dumps(value * 2)))
        if value > 100:
            torch.ones(1)

    meta = capture(step, real=False).meta
    assert all(type(each) is float for each in seen)
    assert meta.decisive


def test_a_check_that_ends_the_program_does_not_decide_its_ops() -> None:
    x = torch.randn(4)

    def step() -> None:
        if not torch.isfinite(x.sum() * 2):
            sys.exit(1)
        math.exp((x.sum() * 2).item())

    meta = capture(step, real=False).meta
    assert meta.decisive == meta.untested == ()
    assert "the step stops with another value: with False, SystemExit: 1" in meta.assumptions[0]
