"""A live budget on a GPU: the same results, memory, time, and what only a GPU has. One command for a new machine.

    python benchmarks/budget_gpu.py [--write] [--device cuda:1] [CASE ...]

Every case runs in a process of its own. Steps of each workload run twice from one seed, without a budget and under one
of a share of the memory that an ordinary step takes beyond what is there before it. Compared are all losses,
parameters, optimizer state and generators, bit for bit. The peak is the allocator's (`torch.cuda.max_memory_allocated`;
on a CPU the allocator's record), beside the one that the budget prints. Time is that of the median step, after the
device is done. Checks answer in a word, or say what went wrong. Without a GPU the workloads run on the CPU, and checks
of queues are left out.
"""

from __future__ import annotations

import contextlib
import gc
import hashlib
import statistics
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import harness
import torch
from torch.profiler import ProfilerActivity, profile

from tensortide.errors import BudgetLowered, RunError
from tensortide.examples import find
from tensortide.run.budget import Budget
from tensortide.run.device import device_of

UNLIMITED = 1 << 60
SHARES = (0.8, 0.5, 0.3)
STEPS = 4
CHILD_S = 240
WORKLOADS: dict[str, dict[str, Any]] = {
    "gpt2": {"batch": 8, "seq": 512, "layers": 12, "dropout": 0.1},
    "resnet50": {"batch": 32},
    "unet": {"batch": 4},
    "bert": {"batch": 32},
    "lstm": {"batch": 128, "seq": 64},
}
SMALLEST: dict[str, dict[str, Any]] = {
    "gpt2": {"batch": 2, "seq": 16, "hidden": 16, "layers": 2, "heads": 2, "vocab": 32, "dropout": 0.1}
}
STEP_COLUMNS = {
    "workload": "{workload}",
    "share": "{share}",
    "same bits": "{same}",
    "peak, MiB": "{peak_mib:.1f}",
    "peak printed, MiB": "{printed_mib:.1f}",
    "budget, MiB": "{budget_mib:.1f}",
    "time": "{slowdown:.2f}",
    "recomputed": "{recomputed:,}",
}
CHECK_COLUMNS = {"check": "{check}", "answer": "{answer}"}

Step = Callable[[], Any]


class OnDevice:
    """A workload on ``name``, with what is measured of its device."""

    def __init__(self, name: str) -> None:
        self.hardware = device_of(name)
        self.device = self.hardware.device
        self.gpu = self.device.type != "cpu"
        self.module: Any = torch.get_device_module(self.device.type) if self.gpu else None
        torch.use_deterministic_algorithms(True, warn_only=True)
        warnings.simplefilter("ignore")

    def build(self, name: str, settings: dict[str, Any]) -> Step:
        gc.collect()
        torch.manual_seed(0)
        with torch.device(self.device):
            step: Step = find(name).load()(**settings)
        return step

    def steps(self, step: Step, count: int) -> tuple[list[torch.Tensor], float]:
        """Losses, and the seconds of the median step."""
        losses, seconds = [], []
        for _ in range(count):
            began = time.perf_counter()
            with torch.device(self.device):
                loss = step()
            if isinstance(loss, torch.Tensor):
                losses.append(loss.detach().clone())
            del loss
            self.hardware.synchronize()
            seconds.append(time.perf_counter() - began)
        return losses, statistics.median(seconds)

    @contextlib.contextmanager
    def peak(self) -> Iterator[list[int]]:
        """The most bytes allocated at once, beyond what is allocated now: the only item, in the end."""
        found: list[int] = []
        gc.collect()
        if self.gpu:
            self.hardware.reclaim()
            self.module.reset_peak_memory_stats(self.device)
            before = self.module.memory_allocated(self.device)
            yield found
            found.append(self.module.max_memory_allocated(self.device) - before)
            return
        with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as trace:
            yield found
        assert trace.profiler is not None
        now = most = 0
        for event in trace.profiler.kineto_results.events():
            if event.name() == "[memory]":
                now += event.nbytes()
                most = max(most, now)
        found.append(most)

    def generators(self) -> list[torch.Tensor]:
        states = [torch.get_rng_state()]
        return [*states, self.module.get_rng_state(self.device)] if self.gpu else states


def everything(step: Step, losses: list[torch.Tensor], generators: list[torch.Tensor]) -> list[torch.Tensor]:
    from tests.run.same import state

    return [tensor.cpu() for tensor in (*losses, *state(step), *generators)]


def digest(tensors: list[torch.Tensor]) -> str:
    """Equal for the same bits."""
    found = hashlib.sha256()
    for tensor in tensors:
        found.update(f"{tensor.dtype}{tuple(tensor.shape)}".encode())
        found.update(tensor.contiguous().reshape(-1).view(torch.uint8).numpy() if tensor.numel() else b"")
    return found.hexdigest()


def workload(name: str, settings: dict[str, Any], device: str, count: int) -> dict[str, Any]:
    """An ordinary run, for comparison: its peak and time; and whether it repeats bit for bit."""
    on = OnDevice(device)
    runs = []
    seconds = peak = 0.0
    for _ in range(2):
        step = on.build(name, settings)
        on.steps(step, 1)
        with on.peak() as most:
            on.steps(step, 1)
        losses, seconds = on.steps(step, count)
        peak = most[0]
        runs.append(digest(everything(step, losses, on.generators())))
        del step, losses
    return {"peak": peak, "seconds": seconds, "digest": runs[0], "repeats": runs[0] == runs[1]}


def under(name: str, settings: dict[str, Any], device: str, count: int, share: float, plain: dict[str, Any]) -> Any:
    """The same under a budget of ``share`` of the ordinary peak."""
    on = OnDevice(device)
    step = on.build(name, settings)
    on.steps(step, 1)
    gc.collect()
    with Budget(UNLIMITED, device=on.device) as probe:
        before = probe.resident_bytes
    limit = before + int(plain["peak"] * share)
    with Budget(limit, device=on.device) as budget:
        with on.peak() as most:
            on.steps(step, 1)
        losses, seconds = on.steps(step, count)
        usage = budget.usage
    same = plain["digest"] == digest(everything(step, losses, on.generators()))
    return {
        "same": "yes" if same else "NO" if plain["repeats"] else "no; nor are ordinary runs",
        "peak_mib": (before + most[0]) / (1 << 20),
        "printed_mib": usage.peak_bytes / (1 << 20),
        "budget_mib": limit / (1 << 20),
        "slowdown": seconds / plain["seconds"],
        "seconds": seconds,
        "recomputed": usage.recomputations // (1 + count),
    }


# -- checks -----------------------------------------------------------------------------------------


def small(on: OnDevice) -> Step:
    return on.build("gpt2", {"batch": 4, "seq": 128, "hidden": 256, "layers": 8, "heads": 4, "dropout": 0.1})


def refuses_graphs(device: str) -> str:
    on = OnDevice(device)
    with Budget(UNLIMITED, device=on.device):
        try:
            torch.cuda.make_graphed_callables(torch.nn.Linear(1, 1), (torch.ones(1, 1),))
        except RunError:
            return "refused"
    return "NOT REFUSED"


def auto(device: str) -> str:
    """Memory that the allocator has cached is free."""
    on = OnDevice(device)
    size = int(on.hardware.memory()[0] * 0.3)
    tensor = torch.empty(size, dtype=torch.uint8, device=on.device)
    before = on.hardware.memory()[0]
    del tensor
    after = on.hardware.memory()[0]
    return "counts cached blocks" if after - before > size * 0.95 else f"{before} before, {after} after"


def out_of_memory(device: str) -> str:
    """A real error of the allocator, whose share of the device is set to 60 % of the ordinary peak."""
    on = OnDevice(device)
    step = small(on)
    on.steps(step, 2)
    with on.peak() as most:
        on.steps(step, 1)
    losses, _ = on.steps(step, STEPS)
    expected = digest(everything(step, losses, on.generators()))
    del step, losses
    step = small(on)
    on.steps(step, 3)
    gc.collect()
    on.hardware.reclaim()
    total = on.module.get_device_properties(on.device).total_memory
    allowed = on.module.memory_reserved(on.device) + int(most[0] * 0.6)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        with Budget(UNLIMITED, device=on.device) as budget:
            on.module.set_per_process_memory_fraction(allowed / total, on.device)
            losses, _ = on.steps(step, STEPS)
            usage = budget.usage
            on.module.set_per_process_memory_fraction(1.0, on.device)
    answered = any(warning.category is BudgetLowered for warning in warned)
    right = expected == digest(everything(step, losses, on.generators()))
    return f"{'answered' if answered else 'NEVER RAISED'}, {usage.recomputations:,} recomputed, same bits: {right}"


def layered(on: OnDevice, x: torch.Tensor, weights: list[torch.Tensor]) -> torch.Tensor:
    """A network whose every other layer runs on a side stream, with a dropout each."""
    main, side = on.module.current_stream(on.device), on.module.Stream(on.device)
    for number, weight in enumerate(weights):
        stream, other = (side, main) if number % 2 else (main, side)
        stream.wait_stream(other)
        x.record_stream(stream)
        with on.module.stream(stream):
            x = torch.nn.functional.dropout(torch.tanh(x @ weight), 0.1)
    main.wait_stream(side)
    x.record_stream(main)
    return x.square().mean()


def streams(device: str) -> str:
    """Forward and backward on two streams, under a budget of 40 %."""
    on = OnDevice(device)

    def run(limit: float | None) -> tuple[list[torch.Tensor], int, int]:
        torch.manual_seed(0)
        x = torch.rand(2048, 1024, device=on.device)
        weights = [torch.randn(1024, 1024, device=on.device, requires_grad=True) for _ in range(24)]
        found: list[torch.Tensor] = []
        with contextlib.ExitStack() as stack:
            budget = None
            if limit is not None:
                with Budget(UNLIMITED, device=on.device) as probe:
                    there = probe.resident_bytes
                budget = stack.enter_context(Budget(there + int(limit), device=on.device))
            with on.peak() as most:
                for _ in range(10):
                    loss = layered(on, x, weights)
                    loss.backward()
                    gradients = [weight.grad for weight in weights if weight.grad is not None]
                    found += [tensor.detach().cpu() for tensor in (loss, *gradients)]
                    del gradients
                    for weight in weights:
                        weight.grad = None
            return found, most[0], budget.usage.recomputations if budget is not None else 0

    expected, peak, _ = run(None)
    found, _, recomputed = run(peak * 0.4)
    return f"same bits: {digest(expected) == digest(found)}, {recomputed:,} recomputed"


def prefetcher(device: str) -> str:
    """Pinned batches copied on a side stream while the step before runs, under a budget of 40 %."""
    on = OnDevice(device)

    def run(limit: float | None) -> tuple[list[torch.Tensor], int]:
        torch.manual_seed(0)
        layers = [torch.nn.Linear(1024, 1024, device=on.device) for _ in range(12)]
        batches = [torch.rand(2048, 1024).pin_memory() for _ in range(8)]
        side, main = on.module.Stream(on.device), on.module.current_stream(on.device)
        losses = []

        def load(number: int) -> torch.Tensor:
            with on.module.stream(side):
                return batches[number % len(batches)].to(on.device, non_blocking=True)

        with contextlib.ExitStack() as stack:
            if limit is not None:
                with Budget(UNLIMITED, device=on.device) as probe:
                    there = probe.resident_bytes
                stack.enter_context(Budget(there + int(limit), device=on.device))
            with on.peak() as most:
                ahead = load(0)
                for number in range(1, 20):
                    main.wait_stream(side)
                    x, ahead = ahead, load(number)
                    x.record_stream(main)
                    for layer in layers:
                        x = torch.tanh(layer(x))
                    loss = x.square().mean()
                    loss.backward()
                    losses += [loss.detach().cpu(), *(layer.weight.grad.cpu() for layer in layers)]
                    for layer in layers:
                        layer.zero_grad()
        return losses, most[0]

    expected, peak = run(None)
    found, _ = run(peak * 0.6)
    return f"same bits: {digest(expected) == digest(found)}"


def timing(device: str) -> str:
    """Time of the ops by events against that of the whole step."""
    on = OnDevice(device)
    step = small(on)
    with Budget(UNLIMITED, device=on.device) as budget:
        on.steps(step, 6)
        budget.reset()
        on.steps(step, 6)
        usage = budget.usage
    return f"ops take {usage.base_ns / usage.open_ns:.0%} of the time, {usage.base_ns / usage.ops / 1000:.1f} us each"


EVERYWHERE = {"graphs of kernels": refuses_graphs}
CHECKS = {
    **EVERYWHERE,
    "auto": auto,
    "out of memory": out_of_memory,
    "two streams": streams,
    "prefetcher": prefetcher,
    "time by events": timing,
}


def measure(run: harness.Run) -> None:
    device = str(device_of(run.options.device).device)
    if device != "cpu":
        run.note(f"Device: {torch.get_device_module(torch.device(device).type).get_device_name(device)}.")
    variables = {"CUBLAS_WORKSPACE_CONFIG": ":4096:8"}
    names = {*WORKLOADS, *CHECKS}
    chosen = set(run.options.names) or names
    if run.options.smallest:
        chosen = {*SMALLEST, *CHECKS}
    steps = run.table(STEP_COLUMNS, ("workload", "share"), "Steps")
    count = 1 if run.smallest else STEPS
    for name, settings in (SMALLEST if run.smallest else WORKLOADS).items():
        if name not in chosen:
            continue
        try:
            plain = run.child(workload, name, settings, device, count, timeout_s=CHILD_S, **variables)
        except harness.ChildFailed as error:
            steps.add({"workload": name, "share": "ordinary", "same": str(error)})
            continue
        for share in SHARES[:1] if run.smallest else SHARES:
            row: harness.Row = {"workload": name, "share": share}
            try:
                row |= run.child(under, name, settings, device, count, share, plain, timeout_s=CHILD_S, **variables)
            except harness.ChildFailed as error:
                row["same"] = str(error)
            steps.add(row)
    answers = run.table(CHECK_COLUMNS, ("check",), "Checks")
    for name, check in CHECKS.items():
        if name in chosen:
            if device == "cpu" and name not in EVERYWHERE:
                answers.add({"check": name, "answer": "needs a GPU"})
                continue
            try:
                answer = run.child(check, device, timeout_s=CHILD_S, **variables)
            except harness.ChildFailed as error:
                answer = str(error)
            answers.add({"check": name, "answer": answer})


if __name__ == "__main__":
    harness.main(__doc__, measure, device={"help": "cpu, cuda, cuda:1; by default a GPU if there is one"})
