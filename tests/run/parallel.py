"""Training over several processes, and what each leaves behind under a budget.

Packages of ``torch.distributed`` are imported where they are used: that takes seconds.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.algorithms.ddp_comm_hooks.default_hooks as comm_hooks
import torch.distributed.nn.functional as autograd_collectives
from torch import Tensor, nn
from torch._C._distributed_c10d import BuiltinCommHookType
from torch.distributed import _functional_collectives as functional
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.distributed_c10d import _coalescing_manager
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

from tests.run.same import run

WIDTH, WORDS, LENGTH, ROWS = 32, 16, 16, 8


def _group() -> dist.ProcessGroup:
    group = dist.group.WORLD
    assert group is not None
    return group


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(2))
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        rows, length, _ = x.shape
        parts = [p.view(rows, length, 4, -1).transpose(1, 2) for p in self.qkv(self.norms[0](x)).chunk(3, -1)]
        attended = F.scaled_dot_product_attention(parts[0], parts[1], parts[2])
        x = x + self.out(attended.transpose(1, 2).reshape(x.shape))
        return x + F.dropout(self.down(F.gelu(self.up(self.norms[1](x)))), 0.1, self.training)


class Model(nn.Module):
    """A small transformer; its last layer is used by every other step only if it has a ``spare`` one."""

    def __init__(self, spare: bool = False) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(WORDS, WIDTH), nn.Linear(WIDTH, WORDS)
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.spare = Block() if spare else None

    def forward(self, words: Tensor, turn: int = 0) -> Tensor:
        x = self.embed(words)
        for block in self.blocks:
            x = block(x)
        found: Tensor = self.head(self.spare(x) if self.spare is not None and turn % 2 else x)
        return found


class Training:
    """A model, its optimizer, and what happens around them; a call is one step and returns its loss."""

    def __init__(
        self,
        rank: int,
        model: nn.Module,
        optimizer: Any = None,
        after: Callable[[], None] | None = None,
        accumulate: bool = False,
        module: nn.Module | None = None,
    ) -> None:
        self.rank, self.model, self.after, self.accumulate = rank, model, after, accumulate
        self.module = module or model
        self.optimizer = optimizer or torch.optim.AdamW(self.module.parameters(), 1e-2, foreach=True)
        self.steps = 0

    def gradients(self, seed: int) -> Tensor:
        words = torch.randint(0, WORDS, (ROWS, LENGTH + 1), generator=torch.Generator().manual_seed(seed))
        arguments = (self.steps,) if getattr(self.module, "spare", None) is not None else ()
        found = self.model(words[:, :-1], *arguments)
        loss = F.cross_entropy(found.flatten(0, 1).float(), words[:, 1:].flatten())
        loss.backward()
        return loss.detach()

    def __call__(self) -> Tensor:
        self.steps += 1
        seed = 1000 * self.rank + self.steps
        if self.accumulate:
            with self.model.no_sync():  # type: ignore[operator]
                self.gradients(seed + 500)
        loss = self.gradients(seed)
        if self.after is not None:
            self.after()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss


class Step:
    """A ``step`` of its own kind and what it changes."""

    def __init__(self, model: nn.Module, step: Callable[[int], Tensor]) -> None:
        self.model, self.step = model, step
        self.optimizer = torch.optim.AdamW(model.parameters(), 1e-2, foreach=False)
        self.steps = 0

    def __call__(self) -> Tensor:
        self.steps += 1
        loss = self.step(self.steps)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss.detach()


# -- kinds of parallel training ----------------------------------------------------------------------


def _by_hand(rank: int, world: int, how: str) -> Any:
    model = Model()

    def after() -> None:
        gradients = [p.grad for p in model.parameters() if p.grad is not None]
        if how == "functional":
            for gradient in gradients:
                gradient.copy_(functional.all_reduce(gradient, "avg" if world == 1 else "sum", _group()))
        elif how == "coalesced":
            with _coalescing_manager(async_ops=True) as manager:
                for gradient in gradients:
                    dist.all_reduce(gradient)
            manager.wait()
        else:
            works = [dist.all_reduce(gradient, async_op=how == "async") for gradient in gradients]
            for work in works:
                if work is not None:
                    work.wait()

    return Training(rank, model, after=after)


def _ddp(rank: int, world: int, accumulate: bool = False, hook: Any = None, spare: bool = False, **options: Any) -> Any:
    model = Model(spare)
    wrapped = DistributedDataParallel(model, bucket_cap_mb=0.05, **options)
    if isinstance(hook, BuiltinCommHookType):
        wrapped._register_builtin_comm_hook(hook)
    elif hook is not None:
        wrapped.register_comm_hook(None, hook)
    return Training(rank, wrapped, accumulate=accumulate, module=model)


def _zero(rank: int, world: int, **options: Any) -> Any:
    from torch.distributed.optim import ZeroRedundancyOptimizer

    model = Model()
    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.AdamW, lr=1e-2, **options)
    training = Training(rank, DistributedDataParallel(model, bucket_cap_mb=0.05), optimizer, module=model)
    training.inner = optimizer.optim  # type: ignore[attr-defined]
    return training


def _fsdp2(rank: int, world: int, clip: bool = False, half: bool = False, **options: Any) -> Any:
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    if half:
        options["mp_policy"] = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    model = Model()
    mesh = init_device_mesh("cpu", (world,))
    for block in model.blocks:
        fully_shard(block, mesh=mesh, **options)
    fully_shard(model, mesh=mesh, **options)
    after = functools.partial(nn.utils.clip_grad_norm_, model.parameters(), 1.0) if clip else None
    return Training(rank, model, after=after)  # type: ignore[arg-type]


def _fsdp1(rank: int, world: int, **options: Any) -> Any:
    from torch.distributed.fsdp import FullyShardedDataParallel
    from torch.distributed.fsdp.wrap import ModuleWrapPolicy

    cpu, policy = torch.device("cpu"), ModuleWrapPolicy({Block})
    return Training(rank, FullyShardedDataParallel(Model(), auto_wrap_policy=policy, device_id=cpu, **options))


class _Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        made: Tensor = self.down(F.gelu(self.up(self.norm(x))))
        return x + made.tanh()


def _tensor_parallel(rank: int, world: int, sequence: bool) -> Any:
    from torch.distributed.tensor import Shard
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, SequenceParallel, parallelize_module

    mesh = init_device_mesh("cpu", (world,))
    model = nn.Sequential(*(_Residual() for _ in range(4)))
    for layer in model:
        ends: Any = ("norm", SequenceParallel()), ("up", ColwiseParallel()), ("down", RowwiseParallel())
        if sequence:
            column, row = ColwiseParallel(input_layouts=Shard(1)), RowwiseParallel(output_layouts=Shard(1))
            ends = ("norm", SequenceParallel()), ("up", column), ("down", row)
        parallelize_module(layer, mesh, dict(ends if sequence else ends[1:]))

    def step(seed: int) -> Tensor:
        x = torch.randn(ROWS, LENGTH, WIDTH, generator=torch.Generator().manual_seed(seed))
        if sequence:
            x = x.chunk(world, 1)[rank].contiguous()
        loss: Tensor = model(x).square().mean()
        loss.backward()
        return loss

    return Step(model, step)


def _pipeline(rank: int, world: int, kind: str) -> Any:
    from torch.distributed import pipelining

    model = nn.Sequential(Block(), Block())
    stage = pipelining.PipelineStage(model, rank, world, torch.device("cpu"))
    schedule = getattr(pipelining, kind)(stage, n_microbatches=4, loss_fn=F.mse_loss)

    def step(seed: int) -> Tensor:
        x, y = torch.randn(2, 2 * ROWS, LENGTH, WIDTH, generator=torch.Generator().manual_seed(seed))
        losses: list[Tensor] = []
        if rank == 0:
            schedule.step(x)
        elif rank == world - 1:
            schedule.step(target=y, losses=losses)
        else:
            schedule.step()
        return torch.stack(losses).mean() if losses else torch.zeros(())

    return Step(model, step)


def _contrastive(rank: int, world: int) -> Any:
    """Gathers features of all ranks, with gradients."""
    model = nn.Sequential(*(layer for _ in range(6) for layer in (nn.Linear(WIDTH, WIDTH), nn.Tanh())))

    def step(seed: int) -> Tensor:
        x = torch.randn(64, WIDTH, generator=torch.Generator().manual_seed(1000 * rank + seed))
        features = torch.cat(autograd_collectives.all_gather(model(x)))
        spread = functional.all_gather_tensor_autograd(model(x.flip(0)), 0, _group())
        loss: Tensor = F.cross_entropy(features @ features.t(), torch.arange(len(features))) + spread.square().mean()
        loss = loss + autograd_collectives.all_reduce(model(x).square().mean())
        loss.backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
        return loss

    return Step(model, step)


KINDS: dict[str, Callable[[int, int], Any]] = {
    **{f"by-hand-{how}": functools.partial(_by_hand, how=how) for how in ("sync", "async", "functional", "coalesced")},
    "ddp": _ddp,
    "ddp-views": functools.partial(_ddp, gradient_as_bucket_view=True),
    "ddp-static": functools.partial(_ddp, static_graph=True, gradient_as_bucket_view=True),
    "ddp-unused": functools.partial(_ddp, find_unused_parameters=True, spare=True),
    "ddp-no-sync": functools.partial(_ddp, accumulate=True),
    "ddp-half": functools.partial(_ddp, hook=comm_hooks.fp16_compress_hook),
    "ddp-half-in-c++": functools.partial(_ddp, hook=BuiltinCommHookType.FP16_COMPRESS),
    "zero": _zero,
    "zero-views": functools.partial(_zero, parameters_as_bucket_view=True),
    "fsdp2": _fsdp2,
    "fsdp2-kept": functools.partial(_fsdp2, reshard_after_forward=False),
    "fsdp2-half": functools.partial(_fsdp2, half=True),
    "fsdp2-clip": functools.partial(_fsdp2, clip=True),
    "fsdp1": _fsdp1,
    "fsdp1-originals": functools.partial(_fsdp1, use_orig_params=True),
    "tensor": functools.partial(_tensor_parallel, sequence=False),
    "tensor-sequence": functools.partial(_tensor_parallel, sequence=True),
    "pipeline": functools.partial(_pipeline, kind="ScheduleGPipe"),
    "pipeline-1f1b": functools.partial(_pipeline, kind="Schedule1F1B"),
    "contrastive": _contrastive,
}


def trained(rank: int, world: int, kind: str, share: float) -> list[tuple[bool, int]]:
    """Under a budget without a limit, and under ``share`` of what a step needs beyond what is there at first: whether
    all is the same as without a budget, and the number of recomputations."""
    build = functools.partial(KINDS[kind], rank, world)
    warm = 2 if kind.startswith("ddp") else 1  # the second step has buckets in the order of the first
    plain, free = run(build, None, warm=warm), run(build, 1 << 60, warm=warm)
    assert free.usage is not None
    need = free.usage.peak_bytes - free.before_bytes
    tight = run(build, int(need * (share + 0.03 * rank)), warm=warm)
    assert tight.usage is not None
    return [(plain.same(free), free.usage.recomputations), (plain.same(tight), tight.usage.recomputations)]
