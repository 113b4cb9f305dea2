"""Recurrent translation: Luong et al., "Effective Approaches to Attention-based Neural Machine Translation", 2015."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from tensortide.examples.recurrent import LSTMCell
from tensortide.examples.training import Step, next_token_loss, tokens, training_step

__all__ = ["nmt"]


class Encoder(nn.Module):
    """Embedded source (S, B, hidden) and mask (S, B) -> memory (B, S, 2 hidden) and the forward direction's last state.

    One LSTM layer in each direction; padding, where the mask is False, leaves a state as it is.
    """

    def __init__(self, hidden: int, dropout: float) -> None:
        super().__init__()
        self.ahead, self.back = LSTMCell(hidden, hidden), LSTMCell(hidden, hidden)
        self.dropout = nn.Dropout(dropout)

    def forward(self, source: Tensor, mask: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        steps = list(zip(source.unbind(0), mask.unsqueeze(-1).unbind(0), strict=True))
        ahead, cell, hidden = self._run(self.ahead, steps)
        back, _, _ = self._run(self.back, steps[::-1])
        memory = torch.cat([torch.stack(ahead, 1), torch.stack(back[::-1], 1)], -1)
        return memory * mask.t().unsqueeze(-1), cell, hidden

    def _run(self, lstm: LSTMCell, steps: list[tuple[Tensor, Tensor]]) -> tuple[list[Tensor], Tensor, Tensor]:
        cell = hidden = torch.zeros_like(steps[0][0])
        states = []
        for x, inside in steps:
            new_cell, new_hidden = lstm(self.dropout(x), cell, hidden)
            cell, hidden = torch.where(inside, new_cell, cell), torch.where(inside, new_hidden, hidden)
            states.append(hidden)
        return states, cell, hidden


class Decoder(nn.Module):
    """Embedded target (T, B, hidden), memory (B, S, 2 hidden) and its mask (S, B) -> attentional states (T, B, hidden).

    One LSTM layer that also reads its previous attentional state (input feeding); multiplicative attention.
    """

    def __init__(self, hidden: int, dropout: float) -> None:
        super().__init__()
        self.lstm = LSTMCell(2 * hidden, hidden)
        self.keys = nn.Linear(2 * hidden, hidden, bias=False)
        self.combine = nn.Linear(3 * hidden, hidden, bias=False)
        self.dropout = nn.Dropout(dropout)

    def forward(self, target: Tensor, memory: Tensor, mask: Tensor, cell: Tensor, hidden: Tensor) -> Tensor:
        keys = self.keys(memory)
        outside = ~mask.t()
        fed = torch.zeros_like(hidden)
        states = []
        for x in target.unbind(0):
            cell, hidden = self.lstm(self.dropout(torch.cat([x, fed], -1)), cell, hidden)
            scores = (keys @ hidden.unsqueeze(-1)).squeeze(-1).masked_fill(outside, -math.inf)
            context = (scores.softmax(-1).unsqueeze(1) @ memory).squeeze(1)
            fed = torch.tanh(self.combine(torch.cat([hidden, context], -1)))
            states.append(fed)
        return torch.stack(states)


class Translator(nn.Module):
    """Source ids (S, B), their mask (S, B) and target ids (T, B) -> logits (T, B, vocab)."""

    def __init__(self, vocab: int, hidden: int, dropout: float) -> None:
        super().__init__()
        self.source, self.target = nn.Embedding(vocab, hidden), nn.Embedding(vocab, hidden)
        self.encoder, self.decoder = Encoder(hidden, dropout), Decoder(hidden, dropout)
        self.head = nn.Linear(hidden, vocab, bias=False)

    def forward(self, source: Tensor, mask: Tensor, target: Tensor) -> Tensor:
        memory, cell, hidden = self.encoder(self.source(source), mask)
        logits: Tensor = self.head(self.decoder(self.target(target), memory, mask, cell, hidden))
        return logits


def nmt(
    batch: int = 128,
    source_seq: int = 19,
    target_seq: int = 19,
    hidden: int = 1024,
    vocab: int = 36548,
    dropout: float = 0.2,
    optimizer: str = "sgd",
    train: bool = True,
) -> Step:
    """Recurrent translation: bidirectional encoder, attention; 147 M parameters."""
    model = Translator(vocab, hidden, dropout)
    source, target, labels = tokens(vocab, source_seq, batch), *tokens(vocab, 2, target_seq, batch).unbind(0)
    lengths = torch.randint((source_seq + 1) // 2, source_seq + 1, (batch,))
    mask = torch.arange(source_seq).unsqueeze(1) < lengths
    return training_step(
        model,
        [source, mask, target],
        lambda logits: next_token_loss(logits, labels, 0),
        optimizer,
        lr=1.0,
        clip=5.0,
        train=train,
    )
