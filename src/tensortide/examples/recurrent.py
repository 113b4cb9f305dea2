"""Recurrent networks: Hochreiter and Schmidhuber, "Long Short-Term Memory", 1997; Cho et al. (gated units), 2014;
Jozefowicz et al., "Exploring the Limits of Language Modeling", 2016; Zilly et al., "Recurrent Highway Networks", 2016;
Tai et al., "Improved Semantic Representations From Tree-Structured LSTM Networks", 2015.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from tensortide.examples.training import Parts, classifier, language_model, tokens, trained

__all__ = ["HighwayStep", "LSTMCell", "WordLM", "char_lm", "gru", "lstm", "treelstm", "word_lm"]


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
        return self.classifier(states[:, -1])


class GRULanguageModel(nn.Module):
    """Token ids (B, T) -> logits (B, T, vocab)."""

    def __init__(self, vocab: int, hidden: int, layers: int, dropout: float) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocab, hidden)
        self.gru = nn.GRU(hidden, hidden, layers, batch_first=True, dropout=dropout)
        self.head = nn.Linear(hidden, vocab)

    def forward(self, ids: Tensor) -> Tensor:
        states, _ = self.gru(self.tokens(ids))
        return self.head(states)


@trained(lr=0.1, clip=1.0)
def lstm(
    batch: int = 32,
    seq: int = 100,
    inputs: int = 256,
    hidden: int = 512,
    layers: int = 2,
    classes: int = 10,
) -> Parts:
    """Sequence classifier on PyTorch's LSTM layers."""
    model = LSTMClassifier(inputs, hidden, layers, classes)
    return classifier(model, torch.randn(batch, seq, inputs), classes)


@trained(lr=0.1, clip=1.0)
def gru(
    batch: int = 32,
    seq: int = 100,
    hidden: int = 512,
    layers: int = 2,
    vocab: int = 10000,
    dropout: float = 0.0,
) -> Parts:
    """Language model on PyTorch's gated recurrent layers."""
    model = GRULanguageModel(vocab, hidden, layers, dropout)
    return language_model(model, vocab, batch, seq)


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
        return self.head(torch.stack(sequence))


@trained(lr=0.2, clip=5.0)
def word_lm(
    batch: int = 64,
    seq: int = 80,
    hidden: int = 2004,
    layers: int = 2,
    vocab: int = 10004,
    tied: bool = False,
) -> Parts:
    """Word language model: LSTM cells looped over time; 104 M parameters.

    ``tied=True`` shares the embedding with the softmax. Id 0 is padding and has no loss.
    """
    model, ids, loss = language_model(WordLM(vocab, hidden, layers, tied), vocab, seq, batch, padding=0)
    return model, [*ids, torch.zeros(layers, batch, hidden), torch.zeros(layers, batch, hidden)], loss


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
        return self.head(torch.stack(states))


@trained(lr=0.2, clip=5.0)
def char_lm(
    batch: int = 128,
    seq: int = 150,
    hidden: int = 2004,
    depth: int = 10,
    vocab: int = 98,
) -> Parts:
    """Character language model: a recurrent highway network; 89 M parameters.

    Id 0 is padding and has no loss.
    """
    model, ids, loss = language_model(CharLM(vocab, hidden, depth), vocab, seq, batch, padding=0)
    return model, [*ids, torch.zeros(batch, hidden)], loss


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
