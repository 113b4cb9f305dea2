"""State of the pretended GPU that programs set: nothing of it decides the ops of a step."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from pathlib import Path
from types import FunctionType
from typing import Any

import pytest
import torch

from tensortide import capture
from tensortide.errors import CaptureError
from tensortide.graph import Phase
from tensortide.recorder import cuda_mode
from tensortide.recorder.cuda_mode import CudaFakeMode, pretended_gpu
from tensortide.recorder.pretended import _answers
from tensortide.recorder.script import ScriptOptions
from tests.recorder.script_run import forked


def test_generators_of_the_gpu_are_seeded_saved_and_restored() -> None:
    def workload() -> Callable[[], Any]:
        torch.cuda.manual_seed(1)
        torch.cuda.manual_seed_all(2)
        for module in (torch.cuda, torch.cuda.random):
            module.set_rng_state(module.get_rng_state(), 0)
            module.set_rng_state_all(module.get_rng_state_all())
        weight = torch.ones(4, device="cuda", requires_grad=True)
        return lambda: (weight * 2).sum().backward()

    assert capture(workload, device="cuda").index.main_device == "cuda:0"


def _attributes() -> dict[str, Any]:
    owners: tuple[Any, ...] = (torch.cuda, torch.cuda.memory, torch.cuda.random, torch.accelerator, torch._C)
    return {f"{owner.__name__}.{name}": value for owner in owners for name, value in vars(owner).items()}


def test_each_pretended_function_is_one_of_its_own_with_the_name_module_and_signature_of_the_real_one() -> None:
    real, gpu = _attributes(), pretended_gpu("cuda", None, None)
    assert gpu is not None
    with CudaFakeMode(gpu, {}).installed():
        changed = {name: new for name, new in _attributes().items() if new is not real.get(name)}
    replaced = {name: new for name, new in changed.items() if isinstance(new, FunctionType)}
    assert len(replaced) > 80
    assert len({id(each) for each in replaced.values()}) == len(replaced)
    for name, new in replaced.items():
        old = real.get(name)
        module, _, own = name.rpartition(".")
        expected = (module, own) if old is None else (old.__module__, old.__name__)
        assert (new.__module__, new.__name__) == expected
        if isinstance(old, FunctionType):
            assert inspect.signature(new) == inspect.signature(old)


def test_answers_take_the_arguments_of_the_real_functions_by_name() -> None:
    gpu = pretended_gpu("cuda", None, None)
    assert gpu is not None
    compared = 0
    for owner, answers in _answers(gpu, lambda note: None):
        for name, given in answers.items():
            real = getattr(owner, name, None)
            if isinstance(real, FunctionType) and isinstance(given, FunctionType):
                own = inspect.signature(given).parameters
                if "args" not in own:
                    compared += 1
                    assert list(own) == list(inspect.signature(real).parameters), (owner.__name__, name)
    assert compared > 5


def test_the_compiler_has_a_rule_for_each_pretended_function_and_forgets_it_afterwards() -> None:
    rules = importlib.import_module("torch._dynamo.trace_rules").get_torch_obj_rule_map
    gpu = pretended_gpu("cuda", None, None)
    assert gpu is not None
    real = torch.cuda.set_device
    with CudaFakeMode(gpu, {}).installed():
        rules.cache_clear()  # as if PyTorch's compiler was imported here
        assert torch.cuda.set_device in rules()
    assert real in rules()


COMPILED = """
import torch
model = torch.nn.Linear(4, 2).cuda()
optimizer = torch.optim.AdamW(model.parameters())
compiled, update = torch.compile(model), torch.compile(optimizer.step)
for i in range(3):
    compiled(torch.ones(2, 4, device="cuda")).sum().backward()
    update()
    optimizer.zero_grad()
"""


@pytest.mark.slow
def test_a_script_that_compiles_its_model_and_its_update_runs_on_a_pretended_gpu(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(COMPILED)
    ran = forked(tmp_path, "train.py", options=ScriptOptions(device="cuda"))
    assert ran.graph is not None, ran.err
    assert {op.phase for op in ran.graph.ops} == {Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER}


def _reading() -> Callable[[], Any]:
    weight = torch.ones(4, device="cuda", requires_grad=True)
    return lambda: (weight * 2).sum().backward()


@pytest.mark.parametrize(
    ("settings", "name", "decisive"),
    [
        ("max_split_size_mb:64", "cuda:max_split_size_mb:64", ()),
        (
            "backend:cudaMallocAsync",
            "cuda",
            ("the allocator's settings backend:cudaMallocAsync are not modelled",),
        ),
    ],
)
def test_settings_of_the_allocator_are_replayed_or_named(
    monkeypatch: pytest.MonkeyPatch, settings: str, name: str, decisive: tuple[str, ...]
) -> None:
    monkeypatch.setattr(cuda_mode, "allocator_settings", lambda: settings)
    meta = capture(_reading, device="cuda").meta
    assert (meta.allocator, meta.decisive) == (name, decisive)
    assert set(decisive) <= set(meta.assumptions)


def test_settings_that_pytorch_does_not_accept_end_the_capture_with_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda_mode, "allocator_settings", lambda: "max_split_size:64")
    with pytest.raises(
        CaptureError, match=r"\(PYTORCH_ALLOC_CONF\): Unrecognized key 'max_split_size' in CUDA .*config$"
    ):
        capture(_reading, device="cuda")


@pytest.mark.slow
@pytest.mark.parametrize(
    "made",
    [
        "import os; os.environ['PYTORCH_CUDA_ALLOC_CONF'] = 'roundup_power2_divisions:[1:2,>:4]'; import torch",
        "import torch; torch.cuda.memory._set_allocator_settings('roundup_power2_divisions:[1:2,>:4]')",
    ],
)
def test_a_script_sets_its_allocator(tmp_path: Path, made: str) -> None:
    (tmp_path / "train.py").write_text(COMPILED.replace("import torch", made))
    ran = forked(tmp_path, "train.py", options=ScriptOptions(device="cuda"))
    assert ran.graph is not None, ran.err
    assert ran.graph.meta.allocator == "cuda:roundup_power2_divisions:[1:2,>:4]"
