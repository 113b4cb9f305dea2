"""A device with less memory than the budget says: ops run again after evictions, and never half of one twice."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from tensortide.errors import BudgetInfeasible, BudgetLowered
from tensortide.run.budget import Budget
from tensortide.run.device import Accelerator
from tests.forked_script import forked
from tests.run.fake_gpu import FakeGPU, fake_gpu
from tests.run.same import UNLIMITED, identical

MIB = 1 << 20
pytestmark = pytest.mark.filterwarnings("ignore::tensortide.errors.RunWarning")


def layers(x: torch.Tensor) -> list[torch.Tensor]:
    """Sixteen tensors of 1 MiB, each made of the one before, half of them with random numbers."""
    kept = []
    for number in range(16):
        x = torch.dropout(x, 0.5, True) if number % 2 else x.cos()
        kept.append(x)
    return kept


def given() -> torch.Tensor:
    torch.manual_seed(0)
    return torch.rand(MIB // 4)


def test_an_op_runs_again_after_evictions(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = layers(given())
    state = torch.get_rng_state()
    with fake_gpu(monkeypatch, capacity=8 * MIB) as gpu, Budget(UNLIMITED, device="cpu") as budget:
        with pytest.warns(BudgetLowered, match="found no memory left on cpu under a budget of 1.00 EiB"):
            kept = layers(given())
        assert torch.equal(torch.get_rng_state(), state)
        for tensor in kept:
            tensor.sum()  # brings it back
        assert budget.runtime is not None
        assert budget.runtime.engine.budget < 40 * MIB
        gpu.capacity = UNLIMITED  # for all of it at the end
    assert budget.usage.recomputations > 0
    assert "empty_cache" in gpu.calls
    assert all(map(identical, plain, kept))


def test_the_lower_budget_keeps_later_ops_from_running_into_the_error(monkeypatch: pytest.MonkeyPatch) -> None:
    with fake_gpu(monkeypatch, capacity=8 * MIB) as gpu, Budget(UNLIMITED, device="cpu"):
        kept = layers(given())
        first = sum(call[0] == "denied" for call in gpu.calls)
        kept += layers(given())
        assert sum(call[0] == "denied" for call in gpu.calls) <= first + 1
        gpu.capacity = UNLIMITED


def test_what_never_fits_ends_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    with fake_gpu(monkeypatch, capacity=4 * MIB) as gpu, Budget(UNLIMITED, device="cpu") as budget:
        kept = layers(given())[:2]
        before = budget.budget_bytes
        with pytest.raises(BudgetInfeasible, match=r"aten\.repeat\.default found no memory left on cpu") as caught:
            kept[0].repeat(8)
        assert "\n" not in str(caught.value)
        assert budget.runtime is not None
        assert budget.runtime.engine.budget <= before
        kept[0].sin()  # it goes on
        gpu.capacity = UNLIMITED


def test_tensors_that_cannot_come_back_in_the_end_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    lost = pytest.raises(BudgetInfeasible, match=r"leaving the budget found no memory left on cpu, .* are lost")
    with fake_gpu(monkeypatch, capacity=6 * MIB), lost, Budget(UNLIMITED, device="cpu"):
        kept = layers(given())
    assert len(kept) == 16


class Deny:
    """Lets a kernel do its work and then fail, ``times`` times."""

    def __init__(self, gpu: FakeGPU, monkeypatch: pytest.MonkeyPatch, name: str, times: int = 1) -> None:
        self.times, self.left = times, times
        dispatch = FakeGPU.__torch_dispatch__

        def failing(mode: FakeGPU, func: object, types: object, args: object = (), kwargs: object = None) -> object:
            result = dispatch(mode, func, types, args, kwargs)
            if func._schema.name == name and self.left:  # type: ignore[attr-defined]
                self.left -= 1
                raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 1.00 MiB.")
            return result

        monkeypatch.setattr(FakeGPU, "__torch_dispatch__", failing)


def test_what_an_op_has_half_overwritten_is_recomputed_first(monkeypatch: pytest.MonkeyPatch) -> None:
    x = given()
    expected = x.cos().add_(1)
    with fake_gpu(monkeypatch) as gpu, Budget(UNLIMITED, device="cpu") as budget:
        y = x.cos()
        Deny(gpu, monkeypatch, "aten::add_")
        y.add_(1)
        assert gpu.kernels.count("aten::add_") == 2
        assert gpu.kernels.count("aten::cos") == 2
    assert identical(y, expected)
    assert budget.usage.recomputations == 1


def test_what_cannot_be_recomputed_is_never_written_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    x = given()
    with fake_gpu(monkeypatch) as gpu, Budget(UNLIMITED, device="cpu"):
        Deny(gpu, monkeypatch, "aten::add_")
        with pytest.raises(BudgetInfeasible, match="it may have written to its inputs already"):
            x.add_(1)
        assert gpu.kernels.count("aten::add_") == 1


def test_random_numbers_are_drawn_once(monkeypatch: pytest.MonkeyPatch) -> None:
    x = given()
    expected = x.bernoulli(), x.bernoulli()
    x = given()
    with fake_gpu(monkeypatch) as gpu, Budget(UNLIMITED, device="cpu"):
        Deny(gpu, monkeypatch, "aten::bernoulli", times=2)
        found = x.bernoulli(), x.bernoulli()
    assert all(map(identical, expected, found))


def test_running_statistics_are_updated_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such an op is asked for beforehand whether it fits: it could not be run again."""
    norm = nn.BatchNorm1d(64)
    x = torch.rand(4096, 64)
    with fake_gpu(monkeypatch) as gpu, Budget(UNLIMITED, device="cpu"), torch.no_grad():
        held = [x.cos() for _ in range(6)]
        gpu.capacity = gpu.memory_allocated() + MIB // 2
        most = gpu.capacity - MIB // 4
        monkeypatch.setattr(Accelerator, "fits", lambda self, nbytes: gpu.memory_allocated() + nbytes <= most)
        norm(x)
        assert gpu.calls.count(("denied", "aten::native_batch_norm")) == 0
        assert gpu.kernels.count("aten::native_batch_norm") == 1
        gpu.capacity = UNLIMITED
    assert norm.num_batches_tracked == 1
    assert len(held) == 6


def test_a_recomputation_that_fails_runs_again(monkeypatch: pytest.MonkeyPatch) -> None:
    x = given()
    expected = x.cos().mul_(2)
    with fake_gpu(monkeypatch) as gpu, Budget(UNLIMITED, device="cpu") as budget:
        y = x.cos().mul_(2)
        assert budget.runtime is not None
        storage = budget.runtime.storage(y)
        budget.runtime.engine.evict(storage)
        Deny(gpu, monkeypatch, "aten::mul_")
        z = y.add(0)
        assert gpu.kernels.count("aten::mul_") == 3
    assert identical(z, expected)
    assert identical(y, expected)


def trained(steps: int) -> list[torch.Tensor]:
    torch.manual_seed(1)
    layers = [part for _ in range(8) for part in (nn.Linear(64, 64), nn.BatchNorm1d(64), nn.Tanh(), nn.Dropout(0.2))]
    model = nn.Sequential(*layers)
    optimizer = torch.optim.AdamW(model.parameters())
    x, losses = torch.rand(1024, 64), []
    for _ in range(steps):
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.detach())
    return [*losses, *(tensor.detach() for tensor in model.state_dict().values()), torch.get_rng_state()]


def test_training_goes_on_with_less_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = trained(3)
    with fake_gpu(monkeypatch, capacity=5 * MIB) as gpu, Budget(UNLIMITED, device="cpu") as budget:
        monkeypatch.setattr(Accelerator, "fits", lambda self, nbytes: gpu.memory_allocated() + nbytes <= gpu.capacity)
        found = trained(3)
        denied = [call for call in gpu.calls if call[0] == "denied"]
    assert denied
    assert budget.usage.recomputations > 0
    assert all(map(identical, expected, found))
    assert gpu.races == []


PROGRAM = """
import re, resource, torch, warnings
from pathlib import Path
from tensortide.errors import BudgetLowered
from tensortide.run.budget import Budget

used = int(re.search(r"VmSize:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1]) << 10
x = torch.ones(10 << 20)
resource.setrlimit(resource.RLIMIT_AS, (used + (384 << 20),) * 2)
with warnings.catch_warnings(record=True) as warned:
    warnings.simplefilter("always")
    with Budget("8GiB", device="cpu") as budget:
        kept = [x]
        for _ in range(16):
            kept.append(kept[-1] * 1.01)
        kept = kept[:4]
print(budget.usage.evictions > 0, any(w.category is BudgetLowered for w in warned))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="limits as Linux has them")
def test_the_host_may_run_out_of_memory_too(tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text(PROGRAM)
    done = forked(script)
    assert done.stdout == "True True\n", done.stderr
