"""Character language model: Zilly et al., "Recurrent Highway Networks", 2016."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from tensortide.examples.training import Step, next_token_loss, tokens, training_step

__all__ = ["char_lm"]


class HighwayStep(nn.Module):
    """One highway layer: input (B, inputs) and state (B, hidden) -> new state, carry coupled to transform."""

    def __init__(self, inputs: int, hidden: int) -> None:
        super().__init__()
        self.candidate = nn.Linear(inputs, hidden)
        self.transform = nn.Linear(inputs, hidden)
        nn.init.constant_(self.transform.bias, -2.0)

    def forward(self, x: Tensor, state: Tensor) -> Tensor:
        return (torch.tanh(self.candidate(x)) - state) * torch.sigmoid(self.transform(x)) + state


class CharLM(nn.Module):
    """Character ids (S, B) and an initial state (B, hidden) -> logits (S, B, vocab).

    Every character passes ``depth`` highway layers; only the first reads the character beside the state.
    """

    def __init__(self, vocab: int, hidden: int, depth: int) -> None:
        super().__init__()
        self.characters = nn.Embedding(vocab, hidden)
        self.highway = nn.ModuleList(HighwayStep(hidden if level else 2 * hidden, hidden) for level in range(depth))
        self.head = nn.Linear(hidden, vocab)

    def forward(self, ids: Tensor, state: Tensor) -> Tensor:
        states = []
        for x in self.characters(ids).unbind(0):
            for level, highway in enumerate(self.highway):
                state = highway(state if level else torch.cat([x, state], -1), state)
            states.append(state)
        logits: Tensor = self.head(torch.stack(states))
        return logits


def char_lm(
    batch: int = 128,
    seq: int = 150,
    hidden: int = 2004,
    depth: int = 10,
    vocab: int = 98,
    optimizer: str = "sgd",
    train: bool = True,
) -> Step:
    """Character language model: a recurrent highway network; 89 M parameters.

    Id 0 is padding and has no loss.
    """
    model = CharLM(vocab, hidden, depth)
    ids, targets = tokens(vocab, seq, batch), tokens(vocab, seq, batch)
    inputs = [ids, torch.zeros(batch, hidden)]
    return training_step(
        model, inputs, lambda logits: next_token_loss(logits, targets, 0), optimizer, lr=0.2, clip=5.0, train=train
    )
