"""Metrics of live models: true figures, nothing of the model changed."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

import tensortide
from tensortide.errors import MetricError, Unavailable
from tensortide.measures import Evaluation, Missing, Profiler
from tensortide.measures.scores import accuracy


def small() -> nn.Sequential:
    """A network with batch norm, so that a forward in training mode would change it."""
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 10))


def batches(*sizes: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    return [(torch.randn(n, 3, 8, 8), torch.randint(0, 10, (n,))) for n in sizes]


def test_figures_of_a_forward_are_those_of_its_shapes() -> None:
    found = tensortide.Profiler(small(), {"train": batches(4)})
    macs = 8 * 36 * 3 * 9 + 8 * 36 * 10
    assert found.compute("macs") == macs
    assert found.compute("macs", batch_size=5) == 5 * macs
    parameters = 8 * 3 * 9 + 8 + 2 * 8 + 8 * 36 * 10 + 10
    assert found.compute("total_params") == parameters
    assert found.compute("model_size") == 4 * parameters
    assert found.compute("buffer_size") == 4 * 16 + 8
    assert found.compute("activation_peak") == 4 * 2 * 8 * 36


def test_tied_and_frozen_parameters_in_their_own_dtype() -> None:
    model = nn.Sequential(nn.Linear(64, 64, dtype=torch.bfloat16), nn.Linear(64, 64, dtype=torch.bfloat16))
    model[1].weight = model[0].weight
    model[1].requires_grad_(False)
    model[0].weight.requires_grad_(True)
    found = Profiler(model, {"train": (torch.randn(1, 64, dtype=torch.bfloat16),)})
    assert found.compute("total_params") == 64 * 64 + 2 * 64
    assert found.compute("trainable_params") == 64 * 64 + 64
    assert found.compute("model_size") == 2 * (64 * 64 + 2 * 64)


def test_everything_of_a_model_is_computed_and_nothing_changed() -> None:
    model, data = small(), {"train": batches(4), "test": batches(4, 3)}
    before, state = copy.deepcopy(model.state_dict()), torch.get_rng_state()
    found = Profiler(model, data)
    found.register(Evaluation(accuracy))
    values = found.compute_all(runs=3, warmup=1)
    assert isinstance(values["eval_metric"], float)
    assert isinstance(values["execution_time"], int)
    assert values["execution_time_p10"] <= values["execution_time"] <= values["execution_time_p90"]  # type: ignore[operator]
    assert isinstance(values["forward_flops"], Missing)
    assert torch.equal(state, torch.get_rng_state())
    assert model.training
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())
    assert not any(parameter.grad is not None for parameter in model.parameters())


def test_a_clone_of_another_model_starts_anew() -> None:
    found = Profiler(small(), {"train": batches(4)}, name="first")
    found.compute("macs")
    other = found.clone(model=nn.Sequential(nn.Flatten(), nn.Linear(192, 2)))
    assert other.to_dict() == {}
    assert other.name == "first"
    assert other.compute("macs") == 384
    empty = found.clone(model=nn.Sequential())
    assert len(empty.subject.model) == 0
    assert found.clone(model=nn.Identity(), retain_status=True).to_dict() == found.to_dict()
    assert found.clone(data_splits={"train": batches(2)}, name="b").to_dict() == found.to_dict()


def test_what_a_model_needs_is_said() -> None:
    with pytest.raises(MetricError, match="object is no model of torch"):
        Profiler(object())
    found = Profiler(small())
    assert found.compute("macs") == Missing(
        "a model needs data to be called with: data_splits={'train': loader, or arguments}"
    )
    with pytest.raises(Unavailable, match="no data split 'test'; there are none"):
        found.subject.loader("test")
    with pytest.raises(MetricError, match="takes no device"):
        Profiler(tensortide.capture(small(), torch.randn(1, 3, 8, 8)), device="cpu")


def test_a_step_is_opened_by_name() -> None:
    found = Profiler("mlp")
    assert found.subject.kind == "step"
    one = tensortide.count(tensortide.open("mlp").graph).total
    assert found.compute("flops") == one.flops
    assert found.compute("flops", batch_size=3) == Missing(
        "a recorded step has the batch size that it was recorded with, not 3"
    )


def test_sizes_are_those_of_the_model_and_need_no_call() -> None:
    model = nn.Sequential(nn.Linear(4, 4))
    vars(model)["teacher"] = [nn.Linear(50, 50)]  # a list hides it from the model
    assert Profiler(model).compute("total_params") == sum(p.numel() for p in model.parameters()) == 20
    assert Profiler(nn.Sequential()).compute("model_size") == 0


@pytest.mark.filterwarnings("ignore")  # of the quantization of PyTorch, which warns of its end
def test_a_quantized_model_has_its_true_size() -> None:
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))
    packed = torch.ao.quantization.quantize_dynamic(model, {nn.Linear}, dtype=torch.qint8)
    found = Profiler(packed, {"train": (torch.randn(2, 16),)})
    assert found.compute("total_params") == 16 * 32 + 32 * 4 + 36
    assert found.compute("model_size") == 16 * 32 + 32 * 4 + 4 * 36
    assert found.compute("trainable_params") == 36 * int(packed[0].bias().requires_grad)


@pytest.mark.parametrize("size", [0, -1, True, "4", 2.5, [1]])
def test_batch_sizes_that_are_none(size: object) -> None:
    found = Profiler(small(), {"train": batches(4)})
    with pytest.raises(MetricError, match="a batch size is an integer from 1, not "):
        found.compute("macs", batch_size=size)


def test_what_a_model_saves_is_what_pytorch_packs() -> None:
    for model in (nn.Linear(8, 8), nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))):
        inputs, saved = torch.randn(2, 8), dict[int, int]()

        def pack(tensor: torch.Tensor, saved: dict[int, int] = saved) -> torch.Tensor:
            saved[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            output = model(inputs)
        given = {one.untyped_storage().data_ptr() for one in (inputs, *model.parameters())}
        expected = sum(size for pointer, size in saved.items() if pointer not in given)
        del output
        assert Profiler(model, {"train": (inputs,)}).compute("saved_activations", batch_size=2) == expected
