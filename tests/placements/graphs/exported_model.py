"""A small GPT whose placements go to other tools, and what these tools make of them."""

from __future__ import annotations

import torch
from torch import nn

WIDTH, VOCAB, LENGTH, BATCH = 8, 11, 4, 4


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        made: torch.Tensor = self.out((q @ k.transpose(-1, -2)).softmax(-1) @ v)
        return made


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.attention = nn.LayerNorm(WIDTH), Attention()
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 2 * WIDTH), nn.GELU(), nn.Linear(2 * WIDTH, WIDTH))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.norm(x))
        made: torch.Tensor = x + self.mlp(x)
        return made


class Gpt(nn.Module):
    """A GPT of three blocks."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCAB, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(3))
        self.head = nn.Linear(WIDTH, VOCAB)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.tokens(ids)
        for block in self.blocks:
            x = block(x)
        made: torch.Tensor = self.head(x)
        return made


def built() -> tuple[Gpt, torch.Tensor]:
    torch.manual_seed(0)
    return Gpt(), torch.randint(0, VOCAB, (BATCH, LENGTH))


def loss_of(logits: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
    return nn.functional.cross_entropy(logits.flatten(0, 1), ids.flatten())


def pipelined(spec: dict[str, str], rank: int) -> list[float]:
    """A step of two micro-batches as a pipeline split as ``spec`` has it: the losses, then the norm of the
    gradients that are here."""
    import torch.distributed as dist
    from torch.distributed.pipelining import ScheduleGPipe, SplitPoint, pipeline

    model, ids = built()
    points = {name: SplitPoint[point] for name, point in spec.items()}
    pipe = pipeline(model, mb_args=(ids.chunk(2)[0],), split_spec=points)
    assert pipe.num_stages == dist.get_world_size()
    stage = pipe.build_stage(rank, torch.device("cpu"), dist.group.WORLD)
    schedule = ScheduleGPipe(stage, n_microbatches=2, loss_fn=loss_of)
    losses: list[torch.Tensor] = []
    if rank == 0:
        schedule.step(ids)
    else:
        schedule.step(target=ids, losses=losses)
    norms = [parameter.grad.norm() for parameter in stage.submod.parameters() if parameter.grad is not None]
    return [float(value.detach()) for value in (*losses, torch.stack(norms).norm())]
