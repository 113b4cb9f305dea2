"""Answers of a device to a live budget: on the CPU, and on a fake GPU."""

from __future__ import annotations

import pytest
import torch

from tensortide.errors import NotHere, RunError
from tensortide.run import device
from tensortide.run.block import storage_of
from tensortide.run.budget import Budget
from tensortide.run.device import asked_bytes, default_generators, device_of
from tensortide.run.execution import TIMED
from tensortide.run.operators import Operator
from tests.run.fake_gpu import KERNEL_NS, FakeGPU, fake_gpu
from tests.run.same import UNLIMITED

GIB = 1 << 30


class TwoGPUs(FakeGPU):
    """A module of two devices, the second of which is the current one."""

    def device_count(self) -> int:
        return 2

    def current_device(self) -> int:
        return 1


def test_blocks_that_the_allocator_keeps_are_free(monkeypatch: pytest.MonkeyPatch) -> None:
    with fake_gpu(monkeypatch, capacity=10 * GIB) as gpu:
        gpu.cached = 3 * GIB
        assert gpu.mem_get_info() == (7 * GIB, 10 * GIB)
        assert device_of("cpu").memory() == (10 * GIB, 10 * GIB)
        assert Budget("auto", device="cpu").budget_bytes == 9 * GIB


def test_a_share_set_for_the_process_is_all_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    with fake_gpu(monkeypatch, capacity=10 * GIB) as gpu:
        gpu.cached = GIB
        monkeypatch.setattr(gpu, "get_per_process_memory_fraction", lambda device: 0.5, raising=False)
        assert device_of("cpu").memory() == (5 * GIB, 5 * GIB)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("gpu", "'gpu' names no device: 'cpu', 'cuda' and 'cuda:1' do"),
        ("cuda:x", "'cuda:x' names no device"),
        ("meta", "a memory budget is of a CPU or a GPU: it cannot be of 'meta'"),
        ("mps", "a memory budget cannot be of 'mps': torch.mps has no current_device,"),
    ],
)
def test_a_device_that_cannot_be_is_refused(name: str, message: str) -> None:
    with pytest.raises(RunError, match=message) as caught:
        Budget("1GiB", device=name)
    assert "\n" not in str(caught.value)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is one")
def test_a_gpu_that_is_not_there_is_refused() -> None:
    with pytest.raises(
        NotHere, match="no cuda device was found: choose the device 'cpu' for a budget of the host's memory"
    ):
        Budget("1GiB", device="cuda")


def test_a_device_without_a_number_is_the_current_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "module_of", lambda kind: TwoGPUs())
    assert device_of("cuda").device == torch.device("cuda", 1)
    assert device_of("cuda:0").device == torch.device("cuda", 0)
    with pytest.raises(NotHere, match="there is no cuda:2: 2 cuda devices were found, numbered from 0"):
        device_of("cuda:2")


def test_ops_draw_from_the_generator_of_their_device(monkeypatch: pytest.MonkeyPatch) -> None:
    gpus = TwoGPUs()
    gpus.default_generators = torch.Generator(), torch.Generator()
    monkeypatch.setattr(torch, "get_device_module", lambda kind: gpus)
    host = torch.default_generator
    assert default_generators([torch.device("cuda")]) == [host, gpus.default_generators[1]]
    assert default_generators([torch.device("cuda", 0)]) == [host, gpus.default_generators[0]]
    assert default_generators([torch.device("cpu"), torch.device("meta")]) == [host]


def test_only_generators_that_were_drawn_from_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    other = torch.Generator()
    monkeypatch.setattr("tensortide.run.operators.default_generators", lambda devices: [other, torch.default_generator])
    with Budget(UNLIMITED) as budget:
        x = torch.rand(4)
        assert budget.runtime is not None
        call = budget.runtime.known[storage_of(x)._cdata].call
        assert call is not None
        assert [generator for generator, _ in call.generators] == [torch.default_generator]


def test_ops_are_timed_by_events_and_never_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    with fake_gpu(monkeypatch) as gpu:
        gpu.idle = False
        gpu.kernel_ns["aten::cos"] = 7 * KERNEL_NS
        x = torch.ones(1024)
        with Budget(UNLIMITED, device="cpu") as budget:
            for _ in range(10):
                x.cos()
                torch.sin(x)
            assert "synchronize" not in gpu.calls
            assert gpu.calls.count(("record", 0)) == 2 * 2 * TIMED  # then these two are known
            gpu.idle = False
            usage = budget.usage  # waits
            assert gpu.idle
            assert budget.runtime is not None
            rooms = [room.cost_ns for room in budget.runtime.sizes._known.values() if room.timings]
            assert sorted(rooms) == [KERNEL_NS, 7 * KERNEL_NS]
            assert usage.base_ns >= TIMED * 8 * KERNEL_NS
            before = usage.base_ns
            x.cos()
            assert budget.usage.base_ns - before == 7 * KERNEL_NS


def test_recomputations_are_timed_by_events(monkeypatch: pytest.MonkeyPatch) -> None:
    with fake_gpu(monkeypatch) as gpu:
        gpu.kernel_ns["aten::cos"] = 3 * KERNEL_NS
        x = torch.ones(1024)
        with Budget(UNLIMITED, device="cpu") as probe:
            there = probe.resident_bytes
        with Budget(there + 4 * 4096, "lru", device="cpu") as budget:
            kept = [x.cos() for _ in range(8)]
            kept[0].add_(1)
            assert budget.usage.recomputations > 0
            assert budget.usage.recompute_ns == budget.usage.recomputations * 3 * KERNEL_NS


GRAPHS = [
    (torch.cuda.CUDAGraph, "replay"),
    (torch.cuda.CUDAGraph, "capture_begin"),
    (torch.cuda.graph, "__enter__"),
    (torch.cuda, "make_graphed_callables"),
]


@pytest.mark.parametrize(("owner", "name"), GRAPHS)
def test_graphs_of_kernels_are_refused(owner: object, name: str) -> None:
    before = getattr(owner, name)
    with (
        Budget(UNLIMITED, device="cpu"),
        pytest.raises(RunError, match="graphs of kernels use memory by address") as caught,
    ):
        getattr(owner, name)(None)
    assert "\n" not in str(caught.value)
    assert getattr(owner, name) is before


def test_record_stream_is_no_write() -> None:
    marks = Operator(torch.ops.aten.record_stream.default)
    assert marks.written == []
    assert not marks.allocates


UNDECLARED = [
    ("_cudnn_rnn", "dropout_state"),
    ("_cudnn_rnn_backward", "reserve"),
    ("miopen_rnn", "dropout_state"),
    ("miopen_rnn_backward", "reserve"),
]


@pytest.mark.parametrize(("name", "argument"), UNDECLARED)
def test_writes_of_recurrent_kernels_that_no_schema_tells_are_known(name: str, argument: str) -> None:
    """The state of dropout moves on with every run; the backward pass uses up what the forward pass reserved."""
    assert [written for _, written in Operator(getattr(torch.ops.aten, name).default).written] == [argument]


def test_gathered_statistics_of_normalisations_are_updated_once() -> None:
    operator = Operator(torch.ops.aten.batch_norm_gather_stats_with_counts.default)
    names = [argument.name for argument in operator.func._schema.arguments]
    assert [names[place] for place in operator.statistics] == ["running_mean", "running_var"]
    x, mean, variance = torch.rand(64, 16), torch.zeros(16), torch.ones(16)
    expected = mean.clone(), variance.clone()
    torch.batch_norm_update_stats(x, *expected, 0.1)
    with Budget(UNLIMITED, device="cpu") as budget:
        assert budget.runtime is not None
        batch_mean, _ = torch.batch_norm_update_stats(x, mean, variance, 0.1)
        budget.runtime.engine.evict(budget.runtime.storage(batch_mean))
        batch_mean.add(0)
    assert budget.usage.recomputations == 1
    assert torch.equal(mean, expected[0])
    assert torch.equal(variance, expected[1])


def test_what_is_read_from_another_device_is_not_read_again() -> None:
    there, number = torch.empty(64, device="meta"), torch.empty((), device="meta")
    with Budget(UNLIMITED, device="cpu") as budget:
        made = [torch.zeros_like(there, device="cpu"), torch.zeros_like(number, device="cpu"), torch.zeros(64)]
        assert budget.runtime is not None
        calls = [budget.runtime.known[storage_of(tensor)._cdata].call for tensor in made]
        assert [call is not None for call in calls] == [False, True, True]


@pytest.mark.parametrize(
    ("error", "asked"),
    [
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has ..."), 20 << 20),
        (torch.OutOfMemoryError("XPU out of memory. Tried to allocate 1.50 GiB (GPU 0; ..."), 3 << 29),
        (torch.OutOfMemoryError("of another kind"), 0),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 4096 bytes. Error"), 4096),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"), 0),
        (RuntimeError("mat1 and mat2 shapes cannot be multiplied (2x3 and 2x3)"), None),
    ],
)
def test_errors_for_want_of_memory_are_told_from_others(error: RuntimeError, asked: int | None) -> None:
    assert asked_bytes(error) == asked


def test_the_message_of_the_host_is_known() -> None:
    with pytest.raises(RuntimeError) as caught:
        torch.empty(1 << 55)
    assert asked_bytes(caught.value) == 1 << 57
