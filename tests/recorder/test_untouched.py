"""Capture leaves the user's model, optimizer, data and process exactly as they were."""

from __future__ import annotations

import copy
import importlib
import random
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.nn.modules import module as module_globals
from torch.optim import optimizer as optimizer_globals

from tensortide import capture
from tensortide.errors import CaptureError
from tensortide.recorder import isolate
from tensortide.recorder.surroundings import global_state, replaced_in
from tests.recorder.workloads import Net

PRECISIONS = hasattr(torch._C, "_set_fp32_precision_setter")
"""Since PyTorch 2.9."""
MKLDNN: Any = torch.backends.mkldnn


def snapshot(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """Everything about a model and its optimizer that a capture could change, by value and by identity."""
    return {
        "state": {k: v.clone() for k, v in model.state_dict().items()},
        "ids": {k: (id(p), p._version, p.requires_grad, type(p)) for k, p in model.named_parameters()},
        "grads": {k: None if p.grad is None else p.grad.clone() for k, p in model.named_parameters()},
        "training": {k: m.training for k, m in model.named_modules()},
        "attributes": {k: sorted(vars(m)) for k, m in model.named_modules()},
        "values": {k: v for k, v in vars(model).items() if isinstance(v, (int, str))},
        "hooks": {k: [len(getattr(m, a)) for a in vars(m) if a.endswith("hooks")] for k, m in model.named_modules()},
        "tensor hooks": {k: (p._backward_hooks, p._post_accumulate_grad_hooks) for k, p in model.named_parameters()},
        "optimizer": copy.deepcopy(optimizer.state_dict()),
        "groups": [[id(p) for p in g["params"]] for g in optimizer.param_groups],
        "class": (type(model).__call__, type(model).forward, type(optimizer).step),
        "module globals": {k: len(v) for k, v in vars(module_globals).items() if k.startswith("_global") and v},
        "optimizer globals": {k: len(v) for k, v in vars(optimizer_globals).items() if k.startswith("_global") and v},
        "supported": list(optimizer_globals._foreach_supported_types),
        "rng": (random.getstate(), repr(np.random.get_state()), torch.get_rng_state().tolist()),
        "modes": (torch.is_grad_enabled(), torch.is_inference_mode_enabled(), torch.get_default_dtype()),
        "flags": (
            torch.are_deterministic_algorithms_enabled(),
            torch.get_num_threads(),
            torch.is_autocast_enabled("cpu"),
        ),
    }


def same(a: Any, b: Any) -> bool:
    if isinstance(a, torch.Tensor):
        return type(a) is type(b) and torch.equal(a, b)
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    return bool(a == b)


def made(steps: int = 1) -> tuple[nn.Module, torch.optim.Optimizer, Callable[[], Any]]:
    """A model in mixed train/eval modes, with hooks, trained for a while, and its step."""
    model = Net()
    model.norm.eval()
    model.first.weight.register_hook(lambda gradient: gradient * 1)
    model.register_forward_hook(lambda module, args, output: None)
    optimizer = torch.optim.AdamW(model.parameters())
    x = torch.randn(4, 8)

    def step() -> torch.Tensor:
        random.random()
        np.random.rand()
        loss: torch.Tensor = model(x).square().sum()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    for _ in range(steps):
        step()
    return model, optimizer, step


@pytest.mark.parametrize("real", [False, True], ids=["fake", "real"])
@pytest.mark.parametrize("steps", [0, 2], ids=["new", "trained"])
def test_model_optimizer_and_process_are_as_before(real: bool, steps: int) -> None:
    model, optimizer, step = made(steps)
    before = snapshot(model, optimizer)
    graph = capture(step, real=real)
    after = snapshot(model, optimizer)
    assert len(graph) > 50
    for key, value in before.items():
        assert same(value, after[key]), key
    assert not any(isinstance(v, FakeTensor) for m in model.modules() for v in vars(m).values())


@pytest.mark.parametrize("real", [False, True], ids=["fake", "real"])
def test_the_step_goes_on_as_if_nothing_had_happened(real: bool) -> None:
    def continued(*, captured: bool) -> tuple[Any, Any, Any]:
        torch.manual_seed(1)
        model, optimizer, step = made()
        torch.manual_seed(2)
        if captured:
            capture(step, real=real)
        return step().detach(), dict(model.state_dict()), optimizer.state_dict()

    assert same(continued(captured=True), continued(captured=False))


@pytest.mark.parametrize("real", [False, True], ids=["fake", "real"])
def test_a_step_that_raises_leaves_everything_as_before(real: bool) -> None:
    model, optimizer, step = made()

    def broken() -> None:
        step()
        raise ValueError("no luck")

    before = snapshot(model, optimizer)
    with pytest.raises(CaptureError, match="ValueError: no luck"):
        capture(broken, real=real)
    after = snapshot(model, optimizer)
    for key, value in before.items():
        assert same(value, after[key]), key


@pytest.mark.parametrize("real", [False, True], ids=["fake", "real"])
def test_more_objects_than_are_searched_are_refused_and_left_alone(real: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isolate, "_LIMIT", 3)
    owned = [torch.zeros(4) for _ in range(20)]

    def step() -> None:
        for tensor in owned:
            tensor.add_(1)

    with pytest.raises(CaptureError, match="the step reaches more than 3 Python objects"):
        capture(step, real=real)
    assert not any(tensor.any() for tensor in owned)


def test_the_comparison_can_fail() -> None:
    model, optimizer, step = made()
    before = snapshot(model, optimizer)
    step()
    after = snapshot(model, optimizer)
    changed = {key for key, value in before.items() if not same(value, after[key])}
    assert {"state", "ids", "optimizer", "rng", "values"} <= changed


def test_a_batch_taken_from_an_iterator_is_given_back() -> None:
    def batches() -> Iterator[torch.Tensor]:
        for i in range(10):
            yield torch.full((4, 8), float(i))

    model, data = Net(), batches()
    next(data)

    def step() -> torch.Tensor:
        y: torch.Tensor = model(next(data)).sum()
        return y

    capture(step)
    assert [next(data)[0, 0], next(data)[0, 0]] == [1, 2]


def test_no_tensor_of_the_capture_survives() -> None:
    import gc

    def fake() -> list[FakeTensor]:
        gc.collect()
        return [o for o in gc.get_objects() if type(o) is FakeTensor]

    earlier = fake()  # what other tests of this process keep
    _, _, step = made()
    capture(step)
    known = set(map(id, earlier))
    assert not [o for o in fake() if id(o) not in known]


def test_a_pair_is_captured_without_a_trace() -> None:
    model = Net()
    state = {k: v.clone() for k, v in model.state_dict().items()}
    trained = capture(model, torch.randn(4, 8), loss="sum", optimizer="adamw")
    assert {op.phase.value for op in trained.ops} == {"forward", "backward", "optimizer"}
    assert same(state, dict(model.state_dict()))
    assert (model.calls, model.seen) == (0, None)
    inferred = capture(model, {"x": torch.randn(4, 8)})
    assert {op.phase.value for op in inferred.ops} == {"forward"}


def test_switches_that_the_step_turns_are_turned_back() -> None:
    def workload() -> Callable[[], Any]:
        torch.set_default_dtype(torch.float64)
        torch.use_deterministic_algorithms(True)
        torch.backends.mha.set_fastpath_enabled(False)
        torch.backends.cuda.enable_flash_sdp(False)
        torch.backends.cudnn.benchmark = True
        torch.set_float32_matmul_precision("medium")
        torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
        torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False
        torch._C._set_mkldnn_enabled(False)
        torch.set_flush_denormal(True)
        if PRECISIONS:
            MKLDNN.conv.fp32_precision = "bf16"
        torch.set_autocast_enabled("cpu", True)
        warnings.simplefilter("ignore")
        torch._C._set_grad_enabled(False)
        random.seed(3)
        return lambda: torch.ones(2) + 1

    def state() -> tuple[Any, ...]:
        return (
            torch.get_default_dtype(),
            torch.are_deterministic_algorithms_enabled(),
            torch.backends.mha.get_fastpath_enabled(),
            torch.backends.cuda.flash_sdp_enabled(),
            torch.backends.cudnn.benchmark,
            torch.get_float32_matmul_precision(),
            torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction,
            torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction,
            torch._C._get_mkldnn_enabled(),
            5e-324 * 1.0,  # 0 where denormal numbers are flushed
            PRECISIONS and MKLDNN.conv.fp32_precision,
            torch.is_autocast_enabled("cpu"),
            list(warnings.filters),
            torch.is_grad_enabled(),
            random.getstate(),
        )

    before = state()
    capture(workload)
    assert state() == before

    def broken() -> None:
        workload()
        raise ValueError("no luck")

    with pytest.raises(CaptureError, match="no luck"):
        capture(broken)
    assert state() == before


@pytest.mark.skipif(not PRECISIONS, reason="this PyTorch has no such setting")
@pytest.mark.parametrize("inside", [False, True], ids=["before", "inside"])
def test_precisions_set_through_the_newer_interface_alone_are_left_as_they_were(inside: bool) -> None:
    matmul: Any = torch.backends.cuda.matmul  # the older interface refuses to be read after this

    def step() -> torch.Tensor:
        if inside:
            matmul.fp32_precision = "tf32"
        return torch.ones(2) + 1

    with global_state():
        matmul.fp32_precision = "ieee" if inside else "tf32"
        capture(step)
        assert matmul.fp32_precision == ("ieee" if inside else "tf32")
    assert torch.get_float32_matmul_precision() == "highest"


def test_an_attribute_is_replaced_from_the_import_of_its_module_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    finders = [*sys.meta_path]
    for name in ("imported_late", "never_imported"):
        (tmp_path / f"{name}.py").write_text("answer = 1\ndef asked(): return answer\n")
    with replaced_in("imported_late", "answer", 2), replaced_in("never_imported", "answer", 2):
        late = importlib.import_module("imported_late")
        assert late.asked() == 2
        with replaced_in("imported_late", "answer", 3), replaced_in("imported_late", "missing", 3):
            assert late.asked() == 3
            assert not hasattr(late, "missing")
        assert late.asked() == 2
    assert late.asked() == 1
    assert sys.meta_path == finders
    assert importlib.import_module("never_imported").asked() == 1
