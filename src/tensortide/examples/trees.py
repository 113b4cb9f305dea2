"""Tree LSTMs: Tai et al., "Improved Semantic Representations From Tree-Structured LSTM Networks", 2015."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tensortide.examples.training import Parts, classifier, tokens, trained

__all__ = ["SumCell", "SumTree", "similarity_treelstm", "sum_treelstm", "treelstm"]


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
        return self.classifier(state)

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


@trained(lr=0.05)
def treelstm(
    batch: int = 32,
    depth: int = 6,
    hidden: int = 256,
    vocab: int = 10000,
    classes: int = 5,
) -> Parts:
    """Binary Tree LSTM over a complete tree, walked by Python recursion."""
    model = TreeLSTM(vocab, hidden, classes)
    return classifier(model, tokens(vocab, batch, 1 << depth), classes)


class SumCell(nn.Module):
    """One node: input (B, inputs) and its children's states -> its cell and hidden state (B, hidden).

    The gates read the sum of the children's hidden states; a child's forget gate reads the child's own.
    """

    def __init__(self, inputs: int, hidden: int) -> None:
        super().__init__()
        self.input = nn.Linear(inputs, 4 * hidden)
        self.summed = nn.Linear(hidden, 3 * hidden, bias=False)
        self.own = nn.Linear(hidden, hidden, bias=False)

    def forward(self, x: Tensor, children: list[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
        gates, keep = self.input(x).tensor_split([3 * self.own.in_features], -1)
        if children:
            gates = gates + self.summed(sum(hidden for _, hidden in children))
        admit, emit, candidate = gates.chunk(3, -1)
        state = torch.sigmoid(admit) * torch.tanh(candidate)
        for cell, hidden in children:
            state = state + torch.sigmoid(keep + self.own(hidden)) * cell
        return state, torch.sigmoid(emit) * torch.tanh(state)


class SumTree(nn.Module):
    """(nodes, B, inputs) of a complete binary tree, level by level -> the root's cell state (B, hidden)."""

    def __init__(self, inputs: int, hidden: int) -> None:
        super().__init__()
        self.cell = SumCell(inputs, hidden)

    def forward(self, nodes: Tensor) -> Tensor:
        return self._walk(nodes.unbind(0), 0)[0]

    def _walk(self, nodes: tuple[Tensor, ...], at: int) -> tuple[Tensor, Tensor]:
        below = [child for child in (2 * at + 1, 2 * at + 2) if child < len(nodes)]
        return self.cell(nodes[at], [self._walk(nodes, child) for child in below])


@trained(lr=0.05)
def sum_treelstm(
    batch: int = 640,
    depth: int = 9,
    inputs: int = 100,
    hidden: int = 300,
) -> Parts:
    """Tree LSTM that sums its children, over a complete tree with an input at each node."""
    return SumTree(inputs, hidden), [torch.randn((2 << depth) - 1, batch, inputs)], torch.sum


class SimilarityTree(nn.Module):
    """Token ids (nodes, B) of two trees -> logits (B, classes) of how alike they are."""

    def __init__(self, vocab: int, inputs: int, hidden: int, compared: int, classes: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocab, inputs)
        self.tree = SumTree(inputs, hidden)
        self.compare = nn.Sequential(nn.Linear(2 * hidden, compared), nn.Sigmoid(), nn.Linear(compared, classes))

    def forward(self, left: Tensor, right: Tensor) -> Tensor:
        one, other = (self.tree(self.tokens(ids)) for ids in (left, right))
        return self.compare(torch.cat([one * other, (one - other).abs()], -1))


@trained(lr=0.05)
def similarity_treelstm(
    batch: int = 1,
    depth: int = 3,
    inputs: int = 300,
    hidden: int = 150,
    compared: int = 50,
    vocab: int = 2412,
    classes: int = 5,
) -> Parts:
    """Tree LSTM that compares two sentences by their trees.

    Sizes of the paper on the data set SICK; the trees are complete ones of its sentences' length.
    """
    model = SimilarityTree(vocab, inputs, hidden, compared, classes)
    left, right = tokens(vocab, 2, (2 << depth) - 1, batch).unbind()
    wanted = torch.rand(batch, classes).softmax(-1)
    return model, [left, right], lambda logits: F.kl_div(logits.log_softmax(-1), wanted, reduction="batchmean")
