"""Steps of decoders that PyTorch divides among ranks, of which this process is one: its process group is fake."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.on_device.decoders import SHAPES, Decoder, Shape

MICRO_BATCHES = 8
"""Of a step through a pipeline."""


class Case(NamedTuple):
    """How a step is divided. ``zero`` 3 and 2 are ``fully_shard`` with and without resharding after the forward pass;
    ``rank`` is that of the pipeline, whose stage has the blocks ``start`` to ``end``."""

    model: str
    data: int = 1
    zero: int = 0
    tensor: int = 1
    pipeline: int = 1
    rank: int = 0
    start: int = 0
    end: int = 0
    recompute: bool = False

    @property
    def ranks(self) -> int:
        return self.data * self.tensor * self.pipeline


CUTS = {("gpt2", 2): (13,), ("gpt2", 4): (6, 12, 19), ("llama", 2): (9,), ("llama", 4): (4, 8, 13)}
"""Blocks at which the stages of a pipeline begin, by model and stages."""


def cases(shapes: Mapping[str, Shape]) -> dict[str, Case]:
    made: dict[str, Case] = {}
    for model, shape in shapes.items():
        own = {
            "one": Case(model),
            "recompute": Case(model, recompute=True),
            "data8": Case(model, data=8),
            "data8 zero2": Case(model, data=8, zero=2),
            "data8 zero3": Case(model, data=8, zero=3),
            "data8 zero3 recompute": Case(model, data=8, zero=3, recompute=True),
            **{f"tensor{ranks}": Case(model, tensor=ranks) for ranks in (2, 4, 8)},
        }
        for stages in (2, 4):
            cuts = (0, *(cut * shape.layers // SHAPES[model].layers for cut in CUTS[model, stages]), shape.layers)
            for rank in (0, stages - 1):
                made_of = Case(model, pipeline=stages, rank=rank, start=cuts[rank], end=cuts[rank + 1])
                own[f"pipeline{stages} rank{rank}"] = made_of
        made |= {f"{model} {name}": case._replace(end=case.end or shape.layers) for name, case in own.items()}
    return made


def by_tensor(model: Decoder, ranks: int, device: str) -> None:
    """Divide products by columns and rows, and the vocabulary, as Megatron does."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, Shard
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    mesh = init_device_mesh(device, (ranks,))
    rows = ("out", "down")
    for block in model.blocks:
        linear = [name for name, layer in block.named_children() if isinstance(layer, nn.Linear)]
        parallelize_module(
            block, mesh, {name: RowwiseParallel() if name in rows else ColwiseParallel() for name in linear}
        )
    ends = {
        "tokens": RowwiseParallel(input_layouts=Replicate()),
        "head": ColwiseParallel(output_layouts=Shard(-1), use_local_output=False),
    }
    tied = model.head.weight is model.tokens.weight
    parallelize_module(model, mesh, ends)
    if tied:
        model.head.weight = model.tokens.weight


def divided(case: Case, model: Decoder, device: str) -> nn.Module:
    """The model of this rank."""
    if case.data > 1 and case.zero:
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        mesh, again = init_device_mesh(device, (case.data,)), case.zero == 3
        for block in model.blocks:
            fully_shard(block, mesh=mesh, reshard_after_forward=again)
        return fully_shard(model, mesh=mesh, reshard_after_forward=again)
    if case.data > 1:
        replica = nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True)
        replica.register_comm_hook(None, _reduced)
        return replica
    if case.tensor > 1:
        by_tensor(model, case.tensor, device)
    return model


def _reduced(state, bucket):  # type: ignore[no-untyped-def]  # PyTorch refuses annotations that are text
    """Return the gradients as they are: the work of a fake group has no result."""
    buffer = bucket.buffer()
    done: torch.futures.Future[Tensor] = torch.futures.Future(devices=[buffer.device] if buffer.is_cuda else None)
    done.set_result(buffer)
    return done


@contextlib.contextmanager
def group(ranks: int, rank: int) -> Iterator[None]:
    """A fake process group of ``ranks``, of which this is one."""
    if ranks == 1:
        yield
        return
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=ranks)
    try:
        yield
    finally:
        dist.destroy_process_group()


def loss_of(logits: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(logits.flatten(0, -2), targets.flatten())


Mark = Callable[[str], None]
Step = Callable[[Mark], None]
"""A step; it calls its argument at the end of each phase, with its name."""


def build(case: Case, shape: Shape, device: str) -> Step:
    """The step of this rank."""
    torch.manual_seed(0)
    torch.set_default_dtype(getattr(torch, shape.dtype))
    try:
        with torch.device(device):
            whole = Decoder(shape, case.start, case.end, recompute=case.recompute)
            ids, targets = (torch.randint(0, shape.vocab, (shape.batch, shape.seq)) for _ in range(2))
            wire = torch.randn(shape.batch, shape.seq, shape.hidden)
    finally:
        torch.set_default_dtype(torch.float32)
    model = divided(case, whole, device)
    alike: dict[type, list[nn.Parameter]] = {}
    for parameter in model.parameters():  # the fused update takes tensors of one kind
        alike.setdefault(type(parameter), []).append(parameter)
    update = torch.optim.AdamW([{"params": some} for some in alike.values()], lr=1e-5, fused=True)
    if case.pipeline > 1:
        del whole
        return _stage(case, model, update, ids, targets, wire)
    del wire

    def step(mark: Mark) -> None:
        with _sharded_loss() if case.tensor > 1 else contextlib.nullcontext():
            loss = loss_of(model(ids), targets)
            mark("forward")
            loss.backward()
        del loss
        mark("backward")
        update.step()
        update.zero_grad()
        mark("update")

    return step


def _sharded_loss() -> Any:
    from torch.distributed.tensor.parallel import loss_parallel

    return loss_parallel()


def _stage(
    case: Case, model: nn.Module, update: torch.optim.Optimizer, ids: Tensor, targets: Tensor, wire: Tensor
) -> Step:
    """A step of one rank of a pipeline, in the order 1F1B. What it receives is copied from ``wire``."""
    first, last = case.rank == 0, case.rank == case.pipeline - 1

    def step(mark: Mark) -> None:
        under_way: list[tuple[Tensor, Tensor]] = []

        def forward() -> None:
            given = ids if first else wire.clone().requires_grad_()
            out = model(given)
            under_way.append((given, loss_of(out, targets) / MICRO_BATCHES if last else out))

        def backward() -> None:
            given, out = under_way.pop(0)
            out.backward(None if last else wire.clone())
            given.grad = None

        ahead = min(case.pipeline - 1 - case.rank, MICRO_BATCHES)
        for _ in range(ahead):
            forward()
        mark("forward")
        for _ in range(MICRO_BATCHES - ahead):
            forward()
            backward()
        for _ in range(ahead):
            backward()
        mark("backward")
        update.step()
        update.zero_grad()
        mark("update")

    return step
