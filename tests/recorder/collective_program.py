"""Training on several ranks, run for real over gloo with its collectives logged: ``collective_program.py NAME RANK
RANKS STORE`` writes those of its second step as JSON, each with its group, the bytes of its message, and the rank of
that group to which it is sent or from which it comes."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

WIDTH, BATCH = 16, 4
_MOVE_NOTHING = ("wait_tensor", "_wrap_tensor_autograd")
Step = Callable[[], None]


def _training(model: nn.Module) -> Step:
    optimizer = torch.optim.AdamW(model.parameters(), foreach=False)

    def step() -> None:
        optimizer.zero_grad()
        model(torch.ones(BATCH, WIDTH)).square().sum().backward()
        optimizer.step()

    return step


def _model() -> nn.Sequential:
    hidden = 2 * WIDTH
    return nn.Sequential(
        *(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, hidden), nn.ReLU(), nn.Linear(hidden, WIDTH), nn.Tanh())
    )


def sharded() -> Step:
    """Parameters sharded among all ranks."""
    from torch.distributed.fsdp import fully_shard

    dist.init_process_group("gloo")
    model = _model()
    for layer in (model[1], model[3], model):
        fully_shard(layer)
    return _training(model)


def two_dimensions() -> Step:
    """Tensor and sequence parallel in pairs of ranks, parameters sharded among the pairs."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor import Shard
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        RowwiseParallel,
        SequenceParallel,
        parallelize_module,
    )

    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (dist.get_world_size() // 2, 2), mesh_dim_names=("data", "tensor"))
    plan = {
        "0": SequenceParallel(sequence_dim=0),
        "1": ColwiseParallel(input_layouts=Shard(0)),
        "3": RowwiseParallel(),
    }
    model = parallelize_module(_model(), mesh["tensor"], plan)
    return _training(fully_shard(model, mesh=mesh["data"]))  # type: ignore[arg-type]


def piped(interleaved: bool = False) -> Step:
    """Two stages of pairs of ranks that divide each layer, and of as many replicas as there are left; with two parts of
    the model each if they are interleaved."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleInterleaved1F1B
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    dist.init_process_group("gloo")
    sizes = (2, 2, dist.get_world_size() // 4)
    mesh = init_device_mesh("cpu", sizes, mesh_dim_names=("pipeline", "tensor", "data"))
    stage, parts = mesh["pipeline"].get_local_rank(), 1 + interleaved
    models: list[Any] = []
    stages: list[Any] = []
    for number in range(stage, 2 * parts, 2):
        # Stages of several widths, so that each has to know what is sent to it.
        wide, out = WIDTH * (1 + number), WIDTH * (2 + number)
        model: Any = nn.Sequential(nn.Linear(wide, 2 * wide), nn.ReLU(), nn.Linear(2 * wide, out), nn.Tanh())
        parallelize_module(model, mesh["tensor"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
        models.append(fully_shard(model, mesh=mesh["data"]))
        group = mesh["pipeline"].get_group()
        stages.append(PipelineStage(models[-1], number, 2 * parts, torch.device("cpu"), group=group))

    def loss(out: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return (out - target).square().sum()

    schedule: Any
    if interleaved:
        schedule = ScheduleInterleaved1F1B(stages, 4, loss_fn=loss)
    else:
        schedule = Schedule1F1B(stages[0], 4, loss_fn=loss)
    optimizer = torch.optim.AdamW([each for model in models for each in model.parameters()], foreach=False)

    def step() -> None:
        if stage == 0:
            schedule.step(torch.ones(2 * BATCH, WIDTH))
        else:
            schedule.step(target=torch.ones(2 * BATCH, WIDTH * (1 + 2 * parts)), losses=[])
        optimizer.step()
        optimizer.zero_grad()

    return step


PROGRAMS: dict[str, Callable[[], Step]] = {
    "sharded": sharded,
    "two_dimensions": two_dimensions,
    "piped": piped,
    "interleaved": lambda: piped(interleaved=True),
}


def _bytes(value: Any) -> int:
    if isinstance(value, torch.Tensor):
        return value.numel() * value.element_size()
    return sum(map(_bytes, value)) if isinstance(value, (list, tuple)) else 0


class _Log(TorchDispatchMode):
    """Notes the collectives that run while it is active."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[str, str, int, int]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if any(kind not in (torch.Tensor, nn.Parameter) for kind in types):
            return NotImplemented  # it runs the collectives of its parts
        result = func(*args, **(kwargs or {}))
        if func.namespace in ("c10d", "_c10d_functional") and func.__name__.split(".")[0] not in _MOVE_NOTHING:
            every = (*args, *(kwargs or {}).values(), result)
            peer = args[2] if func.__name__.split(".")[0] in ("send", "recv_") else -1
            self.seen.append((str(func), _group(every), max(map(_bytes, every)), peer))
        return result


def _group(values: Iterable[Any]) -> str:
    for value in values:
        if isinstance(value, torch.ScriptObject) and "ProcessGroup" in str(value):
            return str(dist.ProcessGroup.unbox(value).group_name)
        if isinstance(value, str) and value not in ("sum", "avg"):
            return value
    return ""


def _main(name: str, rank: str, ranks: str, store: str) -> None:
    dist.init_process_group("gloo", rank=int(rank), world_size=int(ranks), init_method=f"file://{store}")
    dist.init_process_group = lambda *_, **__: None
    step = PROGRAMS[name]()
    step()
    with _Log() as log:
        step()
    dist.barrier()
    sys.stdout.write(json.dumps(log.seen))


if __name__ == "__main__":
    _main(*sys.argv[1:])
