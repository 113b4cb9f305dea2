"""Tree LSTM: Tai et al., "Improved Semantic Representations From Tree-Structured LSTM Networks", 2015."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tensortide.examples.training import Step, tokens, training_step

__all__ = ["treelstm"]


class TreeLSTM(nn.Module):
    """Token ids (B, leaves), a power of two of them -> (B, classes), read from the root.

    The tree is walked by recursion: a node is one cell over its two children's states, with a forget gate for each.
    """

    def __init__(self, vocab: int, hidden: int, classes: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocab, hidden)
        self.leaf = nn.Linear(hidden, 3 * hidden)
        self.node = nn.Linear(2 * hidden, 5 * hidden)
        self.classifier = nn.Linear(hidden, classes)

    def forward(self, ids: Tensor) -> Tensor:
        _, state = self._walk(list(self.tokens(ids).unbind(1)))
        logits: Tensor = self.classifier(state)
        return logits

    def _walk(self, leaves: list[Tensor]) -> tuple[Tensor, Tensor]:
        """Cell and hidden state (B, hidden) of the subtree over ``leaves``."""
        if len(leaves) == 1:
            admit, emit, candidate = self.leaf(leaves[0]).chunk(3, -1)
            cell = torch.sigmoid(admit) * torch.tanh(candidate)
            return cell, torch.sigmoid(emit) * torch.tanh(cell)
        middle = len(leaves) // 2
        left, left_state = self._walk(leaves[:middle])
        right, right_state = self._walk(leaves[middle:])
        gates = self.node(torch.cat([left_state, right_state], -1))
        admit, keep_left, keep_right, emit, candidate = gates.chunk(5, -1)
        kept = torch.sigmoid(keep_left) * left + torch.sigmoid(keep_right) * right
        cell = kept + torch.sigmoid(admit) * torch.tanh(candidate)
        return cell, torch.sigmoid(emit) * torch.tanh(cell)


def treelstm(
    batch: int = 32,
    depth: int = 6,
    hidden: int = 256,
    vocab: int = 10000,
    classes: int = 5,
    optimizer: str = "sgd",
    train: bool = True,
) -> Step:
    """Binary Tree LSTM over a complete tree, walked by Python recursion."""
    model = TreeLSTM(vocab, hidden, classes)
    ids = tokens(vocab, batch, 1 << depth)
    labels = torch.randint(0, classes, (batch,))
    return training_step(model, [ids], lambda y: F.cross_entropy(y, labels), optimizer, lr=0.05, train=train)
