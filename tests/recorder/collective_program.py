"""Training on several ranks, run for real over gloo with its collectives logged: ``collective_program.py NAME RANK
RANKS STORE`` writes those of its fourth step as JSON, each with the ranks of its group, the bytes of its message, and
the rank of that group to which it is sent or from which it comes."""

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


def _here() -> str:
    """The device of this process: the CPU, or a GPU that a capture pretends to have."""
    return "cuda" if torch.cuda.is_available() else "cpu"


def _ones(*shape: int) -> torch.Tensor:
    return torch.ones(shape, device=_here())


def _training(model: nn.Module) -> Step:
    optimizer = torch.optim.AdamW(model.parameters(), foreach=False)

    def step() -> None:
        optimizer.zero_grad()
        model(_ones(BATCH, WIDTH)).square().sum().backward()
        optimizer.step()

    return step


def _model() -> nn.Sequential:
    hidden = 2 * WIDTH
    return nn.Sequential(
        *(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, hidden), nn.ReLU(), nn.Linear(hidden, WIDTH), nn.Tanh())
    ).to(_here())


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
    mesh = init_device_mesh(_here(), (dist.get_world_size() // 2, 2), mesh_dim_names=("data", "tensor"))
    plan = {
        "0": SequenceParallel(sequence_dim=0),
        "1": ColwiseParallel(input_layouts=Shard(0)),
        "3": RowwiseParallel(),
    }
    model = parallelize_module(_model(), mesh["tensor"], plan)
    return _training(fully_shard(model, mesh=mesh["data"]))  # type: ignore[arg-type]


def piped(name: str = "1F1B") -> Step:
    """Two stages of pairs of ranks that divide each layer, and of as many replicas as there are left; with two parts of
    the model each if the schedule ``name`` interleaves them."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.pipelining import PipelineStage
    from torch.distributed.pipelining.schedules import get_schedule_class
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    dist.init_process_group("gloo")
    sizes = (2, 2, dist.get_world_size() // 4)
    mesh = init_device_mesh(_here(), sizes, mesh_dim_names=("pipeline", "tensor", "data"))
    stage, parts = mesh["pipeline"].get_local_rank(), 1 + (name not in ("1F1B", "GPipe"))
    models: list[Any] = []
    stages: list[Any] = []
    for number in range(stage, 2 * parts, 2):
        # Stages of several widths, so that each has to know what is sent to it.
        wide, out = WIDTH * (1 + number), WIDTH * (2 + number)
        model: Any = nn.Sequential(nn.Linear(wide, 2 * wide), nn.ReLU(), nn.Linear(2 * wide, out), nn.Tanh()).to(
            _here()
        )
        parallelize_module(model, mesh["tensor"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
        models.append(fully_shard(model, mesh=mesh["data"]))
        group = mesh["pipeline"].get_group()
        stages.append(PipelineStage(models[-1], number, 2 * parts, torch.device(_here()), group=group))

    def loss(out: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return (out - target).square().sum()

    made: Any = get_schedule_class(name)
    schedule = made(stages if parts > 1 else stages[0], 4, loss_fn=loss)
    optimizer = torch.optim.AdamW([each for model in models for each in model.parameters()], foreach=False)

    def step() -> None:
        if stage == 0:
            schedule.step(_ones(2 * BATCH, WIDTH))
        else:
            schedule.step(target=_ones(2 * BATCH, WIDTH * (1 + 2 * parts)), losses=[])
        optimizer.step()
        optimizer.zero_grad()

    return step


def replicated(passes: int = 2, **options: Any) -> Step:
    """Replicas of a model with statistics, whose gradients are averaged in several buckets after the last pass."""
    dist.init_process_group("gloo")
    layers = nn.Sequential(
        nn.Linear(WIDTH, 4 * WIDTH), nn.BatchNorm1d(4 * WIDTH), nn.ReLU(), nn.Linear(4 * WIDTH, WIDTH)
    ).to(_here())
    model = nn.parallel.DistributedDataParallel(layers, bucket_cap_mb=0.002, **options)
    optimizer = torch.optim.AdamW(model.parameters(), foreach=False)

    def step() -> None:
        optimizer.zero_grad()
        for _ in range(passes - 1):
            with model.no_sync():
                model(_ones(BATCH, WIDTH)).square().sum().backward()
        model(_ones(BATCH, WIDTH)).square().sum().backward()
        optimizer.step()

    return step


def replicas_of_shards() -> Step:
    """Parameters sharded in pairs of ranks, with replicas of each pair and gradients that are accumulated."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    dist.init_process_group("gloo")
    mesh = init_device_mesh(_here(), (dist.get_world_size() // 2, 2), mesh_dim_names=("replicas", "shards"))
    model: Any = _model()
    for layer in (model[1], model[3], model):
        fully_shard(layer, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), foreach=False)

    def step() -> None:
        optimizer.zero_grad()
        for last in (False, True):
            model.set_requires_gradient_sync(last)
            model(_ones(BATCH, WIDTH)).square().sum().backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    return step


class _Words(nn.Module):
    """A block of attention and two linear layers between an embedding and scores of words."""

    def __init__(self, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.words = nn.Embedding(2 * WIDTH, WIDTH)
        self.norm, self.last = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.query, self.key, self.value = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(3))
        self.out, self.up, self.down = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)
        self.scores = nn.Linear(WIDTH, 2 * WIDTH, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.words(tokens)
        y = self.norm(x)
        query, key, value = (
            part(y).unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in (self.query, self.key, self.value)
        )
        mixed = nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        mixed = mixed.transpose(1, 2).flatten(2)
        x = x + self.out(mixed)
        return self.scores(self.last(x + self.down(torch.relu(self.up(x)))))  # type: ignore[no-any-return]


def in_parts() -> Step:
    """A transformer whose layers are divided among all ranks, sequences between them, and the loss."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, Shard
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        RowwiseParallel,
        SequenceParallel,
        loss_parallel,
        parallelize_module,
    )

    dist.init_process_group("gloo")
    mesh = init_device_mesh(_here(), (dist.get_world_size(),))
    wide = ColwiseParallel(input_layouts=Shard(1))
    plan = {
        "words": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1)),
        **dict.fromkeys(("norm", "last"), SequenceParallel()),
        **dict.fromkeys(("query", "key", "value", "up"), wide),
        **dict.fromkeys(("out", "down"), RowwiseParallel(output_layouts=Shard(1))),
        "scores": ColwiseParallel(input_layouts=Shard(1), output_layouts=Shard(-1), use_local_output=False),
    }
    model = parallelize_module(_Words(4 // dist.get_world_size()).to(_here()), mesh, plan)
    optimizer = torch.optim.AdamW(model.parameters(), foreach=False)
    tokens = torch.zeros(BATCH, 2 * WIDTH, dtype=torch.int64, device=_here())

    def step() -> None:
        optimizer.zero_grad()
        with loss_parallel():
            nn.functional.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten()).backward()
        optimizer.step()

    return step


def divided_states(together: bool = False) -> Step:
    """Replicas whose optimizer states are divided among ranks, each of which sends the parameters that it updates: one
    by one, or ``together``."""
    from torch.distributed.optim import ZeroRedundancyOptimizer

    dist.init_process_group("gloo")
    model = nn.parallel.DistributedDataParallel(_model())
    optimizer = ZeroRedundancyOptimizer(
        model.parameters(), optimizer_class=torch.optim.AdamW, parameters_as_bucket_view=together, foreach=False
    )

    def step() -> None:
        optimizer.zero_grad()
        model(_ones(BATCH, WIDTH)).square().sum().backward()
        optimizer.step()

    return step


PROGRAMS: dict[str, Callable[[], Step]] = {
    "sharded": sharded,
    "two_dimensions": two_dimensions,
    "piped": piped,
    "interleaved": lambda: piped("Interleaved1F1B"),
    "zero_bubble": lambda: piped("InterleavedZeroBubble"),
    "all_forward_first": lambda: piped("GPipe"),
    "replicated": replicated,
    "replicated_as_views": lambda: replicated(gradient_as_bucket_view=True, find_unused_parameters=True),
    "replicated_static": lambda: replicated(passes=1, static_graph=True),
    "replicas_of_shards": replicas_of_shards,
    "in_parts": in_parts,
    "divided_states": divided_states,
    "divided_states_together": lambda: divided_states(together=True),
}


def _bytes(value: Any) -> int:
    if isinstance(value, torch.Tensor):
        return value.numel() * value.element_size()
    return sum(map(_bytes, value)) if isinstance(value, (list, tuple)) else 0


class _Log(TorchDispatchMode):
    """Notes the collectives that run while it is active."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[str, list[int], int, int]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if any(kind not in (torch.Tensor, nn.Parameter) for kind in types):
            return NotImplemented  # it runs the collectives of its parts
        result = func(*args, **(kwargs or {}))
        if func.namespace in ("c10d", "_c10d_functional") and func.__name__.split(".")[0] not in _MOVE_NOTHING:
            every = (*args, *(kwargs or {}).values(), result)
            peer = args[2] if func.__name__.split(".")[0] in ("send", "recv_") else -1
            self.seen.append((str(func), _group(every), max(map(_bytes, every)), peer))
        return result


def _group(values: Iterable[Any]) -> list[int]:
    """The ranks of the group among the arguments of a collective."""
    for value in values:
        if isinstance(value, torch.ScriptObject) and "ProcessGroup" in str(value):
            return dist.get_process_group_ranks(dist.ProcessGroup.unbox(value))
        if isinstance(value, str) and value not in ("sum", "avg", "max"):
            resolve: Any = vars(dist.distributed_c10d)["_resolve_process_group"]
            return dist.get_process_group_ranks(resolve(value))
    return []


def _main(name: str, rank: str, ranks: str, store: str) -> None:
    dist.init_process_group("gloo", rank=int(rank), world_size=int(ranks), init_method=f"file://{store}")
    dist.init_process_group = lambda *_, **__: None
    step = PROGRAMS[name]()
    for _ in range(3):  # replicas make their buckets anew in the second or third one
        step()
    with _Log() as log:
        step()
    dist.barrier()
    sys.stdout.write(json.dumps(log.seen))


if __name__ == "__main__":
    _main(*sys.argv[1:])
