"""Results that are made again are those of the op: layout, storage and device, as a mode that remembers nothing has."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from tensortide.recorder.fake_mode import StepFakeMode
from tensortide.recorder.fake_results import Results
from tensortide.recorder.torch_compat import FakeTensor, dispatch_keys

CALLS: dict[str, Callable[[torch.Tensor, torch.Tensor], Any]] = {
    "product": lambda x, y: x @ y.t(),
    "in place": lambda x, y: x.add_(1),
    "view": lambda x, y: x.view(2, 2, 8),
    "slice": lambda x, y: x[1:, ::2],
    "several views": lambda x, y: x.split(3, 1),
    "expanded": lambda x, y: y[:1].expand(4, 8),
    "cast": lambda x, y: x.to(torch.bfloat16),
    "not cast": lambda x, y: x.to(torch.float32),
    "contiguous": lambda x, y: x.t().contiguous(),
    "contiguous already": lambda x, y: x.contiguous(),
    "list": lambda x, y: torch.cat([x, y], 1),
    "list of results": lambda x, y: torch._foreach_add([x, y], 2.0),
    "list in place": lambda x, y: torch._foreach_mul_([x, y], 2.0),
    "several results": lambda x, y: torch.ops.aten.native_layer_norm(x, [8], y[0], None, 1e-5),
    "integers and floats": lambda x, y: (x.long() * 2, x.long() * 2.0, x.long() * True),
    "made": lambda x, y: x.new_empty(3, 5, dtype=torch.int8),
    "made of one value": lambda x, y: torch.full((2, 2), 7.0),
    "layout changed": lambda x, y: x.clone().unsqueeze_(0),
    "resized": lambda x, y: x.clone().resize_(2, 2),
    "strided": lambda x, y: x.as_strided((2, 2), (8, 1), 3),
    "conjugate": lambda x, y: x.to(torch.complex64).conj() + 1,
    "sparse": lambda x, y: (
        torch.sparse_coo_tensor(torch.zeros(1, 4, dtype=torch.long), x, (9, 8), check_invariants=False) @ y.t()
    ),
    "gradient": lambda x, y: torch.ops.aten._softmax_backward_data(x, y, 1, torch.float32),
    "without elements": lambda x, y: x[:0] + 1,
    "number": lambda x, y: x.sum(),
}


def told(result: Any, operands: list[torch.Tensor]) -> Any:
    if isinstance(result, (list, tuple)):
        return type(result), [told(each, operands) for each in result]
    if not isinstance(result, torch.Tensor):
        return result
    if result.layout != torch.strided:
        return result.layout, result.shape, result.dtype, result.device
    own = result.untyped_storage()
    shared = [each.untyped_storage()._cdata == own._cdata for each in operands]
    layout = result.shape, result.stride(), result.storage_offset(), result.dtype, result.device, own.nbytes()
    known = isinstance(result, FakeTensor) and result.constant is not None
    return *layout, shared, [result is each for each in operands], dispatch_keys(result).raw_repr(), known


def operands() -> list[torch.Tensor]:
    return [torch.empty(4, 8), torch.empty(4, 8)]


@pytest.mark.parametrize("name", CALLS)
def test_a_result_that_is_made_again_is_that_of_the_op(name: str) -> None:
    call, mode = CALLS[name], StepFakeMode()
    with StepFakeMode(), torch.no_grad():
        given = operands()
        expected = told(call(*given), given)
    with mode, torch.no_grad():
        for _ in range(3):
            given = operands()
            assert told(call(*given), given) == expected


def test_layouts_devices_and_default_dtypes_are_told_apart() -> None:
    with StepFakeMode(), torch.no_grad():
        found: list[Any] = []
        for x in (torch.empty(2, 3), torch.empty(3, 2).t(), torch.empty(2, 3, device="meta"), torch.empty(2, 3).half()):
            made = x + 1
            found.append((made.stride(), made.device.type, made.dtype))
        torch.set_default_dtype(torch.float64)
        try:
            found += [torch.empty(2).dtype, torch.empty(2, dtype=torch.int32).div(2).dtype]
        finally:
            torch.set_default_dtype(torch.float32)
    f32, f16, f64 = torch.float32, torch.float16, torch.float64
    assert found == [((3, 1), "cpu", f32), ((1, 2), "cpu", f32), ((3, 1), "meta", f32), ((3, 1), "cpu", f16), f64, f64]


def test_results_of_a_step_are_made_again_in_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    learnt: list[object] = []
    learn = Results.learn

    def counted(results: Results, call: Any, result: Any) -> None:
        learnt.append(call.key)
        learn(results, call, result)

    monkeypatch.setattr(Results, "learn", counted)
    numbers = []
    with StepFakeMode():
        layers = torch.nn.Sequential(*[torch.nn.Linear(8, 8, bias=False) for _ in range(3)])
        for _ in range(3):
            layers(torch.empty(4, 8)).sum().backward()
            numbers.append(len(learnt))
    assert 10 < numbers[0] < numbers[1] == numbers[2] == numbers[0] + 1  # a second gradient is added to the first
