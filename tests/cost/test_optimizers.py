"""One step costs the same however it is written: a tensor at a time, over lists, or fused."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.optim import SGD, Adagrad, Adam, AdamW, RMSprop

from tests.cost.probe import cost_of, counted
from tests.marks import since

SHAPES = ((300, 7), (211,))
ELEMENTS = 300 * 7 + 211


def step_cost(kind: Any, form: dict[str, bool], **options: Any) -> int:
    parameters = [torch.nn.Parameter(torch.ones(shape)) for shape in SHAPES]
    for parameter in parameters:
        parameter.grad = torch.ones_like(parameter)
    optimizer = kind(parameters, lr=0.1, **options, **form)
    return counted(optimizer.step).by_phase["optimizer"].flops


SINGLE, LISTS, FUSED = {"foreach": False}, {"foreach": True}, {"fused": True}

CASES = [
    (SGD, {}, 2, True),
    (SGD, {"momentum": 0.9}, 4, True),
    (SGD, {"momentum": 0.9, "dampening": 0.1}, 5, True),
    (SGD, {"momentum": 0.9, "nesterov": True, "weight_decay": 0.1}, 8, True),
    (Adam, {}, 13, True),
    (Adam, {"weight_decay": 0.1, "amsgrad": True}, 16, True),
    (AdamW, {}, 14, True),
    pytest.param(AdamW, {"weight_decay": 0.0}, 13, True, marks=since(2, 8, "multiplies by 1 without decay")),
    (Adagrad, {}, 7, True),
    (AdamW, {"amsgrad": True}, 15, True),
    (Adam, {"maximize": True}, 14, True),
    (RMSprop, {}, 9, False),
]


@pytest.mark.parametrize(("kind", "options", "per_element", "fused"), CASES)
def test_forms_agree(kind: Any, options: dict[str, Any], per_element: int, fused: bool) -> None:
    for form in (SINGLE, LISTS, FUSED) if fused else (SINGLE, LISTS):
        assert abs(step_cost(kind, form, **options) - per_element * ELEMENTS) <= 20 * len(SHAPES), form


def test_gradients_are_checked_and_unscaled() -> None:
    gradients = [torch.ones(shape) for shape in SHAPES]
    unscale = torch._amp_foreach_non_finite_check_and_unscale_
    cost = cost_of(lambda: unscale(gradients, torch.zeros(1), torch.ones(1)))
    assert (cost.elementwise_flops, cost.comparisons) == (2 * ELEMENTS, ELEMENTS)


def test_fused_adam_bytes() -> None:
    parameter = torch.nn.Parameter(torch.ones(100))
    parameter.grad = torch.ones(100)
    cost = counted(Adam([parameter], fused=True).step).by_op["aten._fused_adam_"].cost
    assert (cost.read_bytes, cost.written_bytes) == (4 * 100 * 4 + 4, 3 * 100 * 4)
