"""Recurrent networks: Hochreiter and Schmidhuber, "Long Short-Term Memory", 1997; Cho et al. (gated units), 2014;
Jozefowicz et al., "Exploring the Limits of Language Modeling", 2016; Zilly et al., "Recurrent Highway Networks", 2016.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from tensortide.examples.training import Parts, choose, classifier, language_model, trained

__all__ = [
    "GRUCell",
    "HighwayStep",
    "LSTMCell",
    "WordLM",
    "char_lm",
    "lstm",
    "rnn_lm",
    "unrolled_rnn",
    "word_lm",
]


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


class GRUCell(nn.Module):
    """One time step written out: input (B, I) and state (B, H) -> the new state, alone in a tuple."""

    def __init__(self, inputs: int, hidden: int) -> None:
        super().__init__()
        self.gates = nn.Linear(inputs + hidden, 2 * hidden)
        self.candidate = nn.Linear(inputs + hidden, hidden)

    def forward(self, x: Tensor, state: Tensor) -> tuple[Tensor]:
        keep, reset = torch.sigmoid(self.gates(torch.cat([x, state], -1))).chunk(2, -1)
        candidate = torch.tanh(self.candidate(torch.cat([x, reset * state], -1)))
        return (candidate + keep * (state - candidate),)


class LSTMClassifier(nn.Module):
    """(B, T, inputs) -> (B, classes), read from the last time step."""

    def __init__(self, inputs: int, hidden: int, layers: int, classes: int) -> None:
        super().__init__()
        self.lstm = nn.LSTM(inputs, hidden, layers, batch_first=True)
        self.classifier = nn.Linear(hidden, classes)

    def forward(self, x: Tensor) -> Tensor:
        states, _ = self.lstm(x)
        return self.classifier(states[:, -1])


class RecurrentLM(nn.Module):
    """Token ids (B, T) -> logits (B, T, vocab)."""

    def __init__(self, cell: str, vocab: int, hidden: int, layers: int, dropout: float) -> None:
        super().__init__()
        self.cell = cell
        self.tokens = nn.Embedding(vocab, hidden)
        kind = nn.GRU if choose("cell", cell, ("gru", "lstm")) == "gru" else nn.LSTM
        self.add_module(cell, kind(hidden, hidden, layers, batch_first=True, dropout=dropout))
        self.head = nn.Linear(hidden, vocab)

    def forward(self, ids: Tensor) -> Tensor:
        states, _ = self.get_submodule(self.cell)(self.tokens(ids))
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
def rnn_lm(
    batch: int = 32,
    seq: int = 100,
    hidden: int = 512,
    layers: int = 2,
    vocab: int = 10000,
    dropout: float = 0.0,
    cell: str = "gru",
) -> Parts:
    """Language model on PyTorch's recurrent layers."""
    model = RecurrentLM(cell, vocab, hidden, layers, dropout)
    return language_model(model, vocab, batch, seq)


class Unrolled(nn.Module):
    """(T, B, inputs) -> the last state (B, hidden) of a cell that is looped over time, from states of zeros."""

    def __init__(self, cell: LSTMCell | GRUCell, hidden: int) -> None:
        super().__init__()
        self.cell, self.hidden = cell, hidden

    def forward(self, sequence: Tensor) -> Tensor:
        zeros = sequence.new_zeros(sequence.shape[1], self.hidden)
        states: tuple[Tensor, ...] = (zeros, zeros) if isinstance(self.cell, LSTMCell) else (zeros,)
        for x in sequence.unbind(0):
            states = self.cell(x, *states)
        return states[0]


@trained(lr=0.1)
def unrolled_rnn(
    batch: int = 32,
    seq: int = 100,
    inputs: int = 256,
    hidden: int = 512,
    cell: str = "lstm",
) -> Parts:
    """Recurrent cells looped over time, read at the end."""
    kind: type[GRUCell | LSTMCell] = GRUCell if choose("cell", cell, ("gru", "lstm")) == "gru" else LSTMCell
    return Unrolled(kind(inputs, hidden), hidden), [torch.randn(seq, batch, inputs)], torch.sum


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
