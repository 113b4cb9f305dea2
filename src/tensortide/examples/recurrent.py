"""Recurrent layers: Hochreiter and Schmidhuber, "Long Short-Term Memory", 1997; Cho et al. (gated units), 2014."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tensortide.examples.training import Step, next_token_loss, tokens, training_step

__all__ = ["LSTMCell", "gru", "lstm"]


class LSTMCell(nn.Module):
    """One time step written out: input (B, I), cell and hidden state (B, H) -> the new cell and hidden state.

    One matrix (I + H, 4 H) serves the four gates; the forget gate starts open (1 is added before its sigmoid).
    """

    def __init__(self, inputs: int, hidden: int) -> None:
        super().__init__()
        self.gates = nn.Linear(inputs + hidden, 4 * hidden)

    def forward(self, x: Tensor, cell: Tensor, hidden: Tensor) -> tuple[Tensor, Tensor]:
        admit, candidate, keep, emit = self.gates(torch.cat([x, hidden], -1)).chunk(4, -1)
        cell = cell * torch.sigmoid(keep + 1) + torch.sigmoid(admit) * torch.tanh(candidate)
        return cell, torch.tanh(cell) * torch.sigmoid(emit)


class LSTMClassifier(nn.Module):
    """(B, T, inputs) -> (B, classes), read from the last time step."""

    def __init__(self, inputs: int, hidden: int, layers: int, classes: int) -> None:
        super().__init__()
        self.lstm = nn.LSTM(inputs, hidden, layers, batch_first=True)
        self.classifier = nn.Linear(hidden, classes)

    def forward(self, x: Tensor) -> Tensor:
        states, _ = self.lstm(x)
        logits: Tensor = self.classifier(states[:, -1])
        return logits


class GRULanguageModel(nn.Module):
    """Token ids (B, T) -> logits (B, T, vocab)."""

    def __init__(self, vocab: int, hidden: int, layers: int, dropout: float) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocab, hidden)
        self.gru = nn.GRU(hidden, hidden, layers, batch_first=True, dropout=dropout)
        self.head = nn.Linear(hidden, vocab)

    def forward(self, ids: Tensor) -> Tensor:
        states, _ = self.gru(self.tokens(ids))
        logits: Tensor = self.head(states)
        return logits


def lstm(
    batch: int = 32,
    seq: int = 100,
    inputs: int = 256,
    hidden: int = 512,
    layers: int = 2,
    classes: int = 10,
    optimizer: str = "sgd",
    train: bool = True,
) -> Step:
    """Sequence classifier on PyTorch's LSTM layers."""
    model = LSTMClassifier(inputs, hidden, layers, classes)
    series = torch.randn(batch, seq, inputs)
    labels = torch.randint(0, classes, (batch,))
    return training_step(
        model, [series], lambda y: F.cross_entropy(y, labels), optimizer, lr=0.1, clip=1.0, train=train
    )


def gru(
    batch: int = 32,
    seq: int = 100,
    hidden: int = 512,
    layers: int = 2,
    vocab: int = 10000,
    dropout: float = 0.0,
    optimizer: str = "sgd",
    train: bool = True,
) -> Step:
    """Language model on PyTorch's gated recurrent layers."""
    model = GRULanguageModel(vocab, hidden, layers, dropout)
    ids, targets = tokens(vocab, batch, seq), tokens(vocab, batch, seq)
    return training_step(
        model, [ids], lambda logits: next_token_loss(logits, targets), optimizer, lr=0.1, clip=1.0, train=train
    )
