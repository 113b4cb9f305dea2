"""Word language model: Jozefowicz et al., "Exploring the Limits of Language Modeling", 2016."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from tensortide.examples.recurrent import LSTMCell
from tensortide.examples.training import Step, next_token_loss, tokens, training_step

__all__ = ["word_lm"]


class WordLM(nn.Module):
    """Token ids (S, B) and initial states (layers, B, hidden) -> logits (S, B, vocab), unrolled over time."""

    def __init__(self, vocab: int, hidden: int, layers: int, tied: bool) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocab, hidden)
        nn.init.uniform_(self.tokens.weight, -0.1, 0.1)
        self.cells = nn.ModuleList(LSTMCell(hidden, hidden) for _ in range(layers))
        self.head = nn.Linear(hidden, vocab)
        if tied:
            self.head.weight = self.tokens.weight

    def forward(self, ids: Tensor, cells: Tensor, hiddens: Tensor) -> Tensor:
        sequence = list(self.tokens(ids).unbind(0))
        for layer, lstm in enumerate(self.cells):
            cell, hidden = cells[layer], hiddens[layer]
            for time, x in enumerate(sequence):
                cell, hidden = lstm(x, cell, hidden)
                sequence[time] = hidden
        logits: Tensor = self.head(torch.stack(sequence))
        return logits


def word_lm(
    batch: int = 64,
    seq: int = 80,
    hidden: int = 2004,
    layers: int = 2,
    vocab: int = 10004,
    tied: bool = False,
    optimizer: str = "sgd",
    train: bool = True,
) -> Step:
    """Word language model: LSTM cells looped over time; 104 M parameters.

    ``tied=True`` shares the embedding with the softmax. Id 0 is padding and has no loss.
    """
    model = WordLM(vocab, hidden, layers, tied)
    ids, targets = tokens(vocab, seq, batch), tokens(vocab, seq, batch)
    inputs = [ids, torch.zeros(layers, batch, hidden), torch.zeros(layers, batch, hidden)]
    return training_step(
        model, inputs, lambda logits: next_token_loss(logits, targets, 0), optimizer, lr=0.2, clip=5.0, train=train
    )
