"""Steps of a workload that is built anew, without a memory budget: ordinary ones, and in the ways of PyTorch itself."""

from __future__ import annotations

import contextlib
import gc
import random
import sys
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch

from tensortide.errors import NotHere
from tensortide.graph.module_paths import repeated
from tensortide.recorder.changes import Checkpointed, NotApplicable
from tensortide.recorder.changes.apply import changed
from tensortide.recorder.isolate import Isolation
from tensortide.recorder.surroundings import replaced
from tensortide.recorder.torch_compat import partitioner
from tensortide.replays.remat.simulation import UNLIMITED
from tensortide.run import allocations
from tensortide.run.budget import Budget
from tensortide.run.core.build import library
from tensortide.run.device import device_of
from tensortide.run.live import toggle_log
from tensortide.run.measure import WARM, first_step
from tensortide.run.program import Program, current_device

Step = Callable[[], Any]
Way = Callable[[Step, Isolation], contextlib.AbstractContextManager[Step]]
"""Makes of a step the one that runs; what it has replaced in it is undone at the end."""
_BACKEND = "aot_eager_decomp_partition"
"""The backend of torch.compile that partitions joint graphs, and runs their ops eagerly."""


class Repetition(NamedTuple):
    """The times of the measured steps, and the most bytes that tensors take in one more."""

    times_ns: list[int]
    peak_bytes: int


def repetition(program: Program, on: str | None, steps: int, way: Way, *, compiled: bool = False) -> Repetition:
    """Build the step of ``program`` on the device ``on``, warm it up and measure it.

    The peak is that which an open memory budget counts; of ``compiled`` code, which it cannot see, that which
    PyTorch's allocator records.
    """
    device = device_of(on).device
    with current_device(device):
        step, found = program.build(), Isolation(lambda tensor: tensor)
        with way(found.visit(step, ""), found) as changed_step:
            program.timed(changed_step, device, WARM)
            times = program.timed(changed_step, device, steps)
            gc.collect()
            peak = _recorded if compiled else _counted
            return Repetition(times, peak(program, device, changed_step))


def _counted(program: Program, device: torch.device, step: Step) -> int:
    """The peak of a step under a budget without a limit, at which nothing is evicted."""
    with Budget(UNLIMITED, device=device, compiled=False) as budget:
        program.timed(step, device, 1)
    return budget.usage.peak_bytes


def _recorded(program: Program, device: torch.device, step: Step) -> int:
    """The bytes that tensors have before a step, and the most that the allocator hands out beyond them."""
    with Budget(UNLIMITED, device=device, compiled=False) as budget:
        before = budget.resident_bytes
    recorded = allocations.start()
    program.timed(step, device, 1)
    return before + (allocations.stop(device) if recorded else 0)


# -- ways -------------------------------------------------------------------------------------------


@contextlib.contextmanager
def ordinary(step: Step, found: Isolation) -> Iterator[Step]:
    """The step as it is."""
    del found
    yield step


@contextlib.contextmanager
def by_block(step: Step, found: Isolation) -> Iterator[Step]:
    """The step with ``torch.utils.checkpoint`` around each block: the outermost modules of one class that differ in
    a number. Raises NotApplicable if there are none."""
    modules = [
        (path, type(module).__name__)
        for prefix, root in found.roots().items()
        for path, module in root.named_modules(prefix=prefix)
    ]
    blocks = next(iter(repeated(modules).values()), None)
    if blocks is None:
        raise NotApplicable("no module of the step is repeated, as blocks.0, blocks.1, ...: nothing is checkpointed")
    with changed(step, found, [Checkpointed(tuple(blocks))]) as made:
        yield made


def by_partitioner(setting: float) -> Way:
    """The way of ``torch.compile`` with PyTorch's ``activation_memory_budget`` at ``setting``."""

    @contextlib.contextmanager
    def compiled(step: Step, found: Isolation) -> Iterator[Step]:
        min_cut, settings = partitioner()
        if min_cut is None or not hasattr(settings, "activation_memory_budget"):
            raise NotHere("the partitioner of this PyTorch takes no memory budget")
        torch.compiler.reset()
        with contextlib.ExitStack() as stack:
            stack.enter_context(settings.patch(activation_memory_budget=setting))
            for module in found.roots().values():
                forward = torch.compile(module.forward, backend=_BACKEND)
                stack.enter_context(replaced(module, "forward", forward))
            yield step

    return compiled


# -- beside repetitions -----------------------------------------------------------------------------


def seed_all(seed: int) -> None:
    """Seed the random generators of PyTorch, Python and NumPy."""
    torch.manual_seed(seed)
    random.seed(seed)
    if (numpy_random := sys.modules.get("numpy.random")) is not None:
        numpy_random.seed(seed % 2**32)


def core_ready() -> None:
    """Wait until the compiled core is built, where one can be, so that no repetition is measured without it."""
    if (found := library()) is not None:
        found.wait()


def logged(program: Program, budget: Budget, path: str) -> None:
    """Build the step anew, warm it up as those that are measured, and write DTR's log of one more step under
    ``budget``; none of a step that fails."""
    gc.collect()  # steps that ran before may be in cycles, and what they hold would count as resident
    with current_device(budget.device):
        step = program.build()
        first_step(program, step, budget)
        gc.collect()
        with budget:
            program.timed(step, budget.device, WARM - 1)
            toggle_log(path)
            try:
                program.timed(step, budget.device, 1)
            except BaseException:
                budget.log = None
                raise
            toggle_log(False)
