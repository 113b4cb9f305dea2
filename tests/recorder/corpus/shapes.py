# mypy: disable-error-code="no-any-return, arg-type"
"""Values that decide shapes: masks, lengths, routing."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from tests.recorder.steps import Step, mlp, trained


def masked_select() -> Step:
    model, x = mlp(16, 4), torch.randn(8, 16)
    return trained(model, lambda: torch.masked_select(model(x), torch.rand(8, 4) > 0.5).sum())


def known_mask() -> Step:
    model, x, mask = mlp(16, 4), torch.randn(8, 16), torch.arange(8) % 2 == 0
    return trained(model, lambda: model(x)[mask].pow(2).mean())


def routed_experts() -> Step:
    router, experts, x = nn.Linear(16, 4), nn.ModuleList([mlp(16, 32, 16) for _ in range(4)]), torch.randn(64, 16)

    def loss() -> torch.Tensor:
        weights, chosen = router(x).softmax(-1).topk(2)
        out = torch.zeros_like(x)
        for index, expert in enumerate(experts):
            rows, slot = (chosen == index).nonzero(as_tuple=True)
            if rows.numel() > 0:
                out.index_add_(0, rows, expert(x[rows]) * weights[rows, slot, None])
        return out.sum()

    return trained(nn.ModuleList([router, *experts]), loss)


def packed_literal_lengths() -> Step:
    model, x = nn.LSTM(16, 8, batch_first=True), torch.randn(4, 20, 16)

    def loss() -> torch.Tensor:
        packed = nn.utils.rnn.pack_padded_sequence(x, torch.tensor([20, 15, 9, 3]), batch_first=True)
        out, _ = nn.utils.rnn.pad_packed_sequence(model(packed)[0], batch_first=True)
        return out.sum()

    return trained(model, loss)


def detection_boxes() -> Step:
    model, x = nn.Conv2d(3, 5, 3, stride=4), torch.randn(2, 3, 64, 64)

    def loss() -> torch.Tensor:
        out = model(x).flatten(2).transpose(1, 2)
        kept = out[..., 4].sigmoid() > 0.5
        return sum((boxes[keep][:, :4].abs().sum() for boxes, keep in zip(out, kept, strict=True)), start=out.sum() * 0)

    return trained(model, loss)


def unique_tokens() -> Step:
    table, tokens = nn.Embedding(50, 16), torch.randint(0, 50, (4, 10))

    def loss() -> torch.Tensor:
        rows, where = tokens.unique(return_inverse=True)
        return table(rows)[where].sum()

    return trained(table, loss)


def ctc_with_tensors() -> Step:
    model, x, y = nn.Linear(16, 20), torch.randn(50, 4, 16), torch.randint(1, 20, (4, 10))
    sizes = torch.full((4,), 50), torch.full((4,), 10)
    return trained(model, lambda: F.ctc_loss(model(x).log_softmax(-1), y, *sizes))


def ctc_with_lists() -> Step:
    model, x, y = nn.Linear(16, 20), torch.randn(50, 4, 16), torch.randint(1, 20, (4, 10))
    return trained(model, lambda: F.ctc_loss(model(x).log_softmax(-1), y, (50,) * 4, (10,) * 4))


def beam_of_tokens() -> Step:
    model, table, tokens = nn.GRUCell(16, 16), nn.Embedding(20, 16), [1]

    def step() -> list[int]:
        h, out = torch.zeros(1, 16), list(tokens)
        with torch.no_grad():
            for _ in range(5):
                h = model(table(torch.tensor([out[-1]])), h)
                out.append(int((h @ table.weight.T).argmax()))
                if out[-1] == 3:
                    break
        return out

    return step
