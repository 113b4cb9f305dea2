"""Attention-based speech recognition: Chorowski et al., "Attention-Based Models for Speech Recognition", 2015."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call

from tensortide.examples.recurrent import LSTMCell
from tensortide.examples.training import Parts, next_token_loss, tokens, trained

__all__ = ["speech"]


class BidirectionalLSTM(nn.Module):
    """(T, B, inputs) and lengths (B,) -> (T, B, 2 hidden); the way back starts at each sequence's own end."""

    def __init__(self, inputs: int, hidden: int) -> None:
        super().__init__()
        self.hidden = hidden
        self.ahead, self.back = LSTMCell(inputs, hidden), LSTMCell(inputs, hidden)

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        time = torch.arange(x.shape[0], device=x.device).unsqueeze(1)
        mirrored = torch.where(time < lengths, lengths - 1 - time, time).unsqueeze(-1)
        back = self._run(self.back, x.take_along_dim(mirrored, 0)).take_along_dim(mirrored, 0)
        return torch.cat([self._run(self.ahead, x), back], -1)

    def _run(self, lstm: LSTMCell, x: Tensor) -> Tensor:
        cell = hidden = x.new_zeros(x.shape[1], self.hidden)
        states = []
        for step in x.unbind(0):
            cell, hidden = lstm(step, cell, hidden)
            states.append(hidden)
        return torch.stack(states)


class Encoder(nn.Module):
    """Features (T, B, features) and lengths (B,) -> memory (B, ceil(T / 4), 2 hidden); each layer but the first sees
    every other time step of the one before."""

    mean: Tensor
    deviation: Tensor

    def __init__(self, features: int, hidden: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(BidirectionalLSTM(inputs, hidden) for inputs in (features, 2 * hidden, 2 * hidden))
        self.register_buffer("mean", torch.zeros(features))
        self.register_buffer("deviation", torch.ones(features))

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        x = (x - self.mean) / self.deviation
        for index, layer in enumerate(self.layers):
            if index:
                x, lengths = x[::2], (lengths + 1) // 2
            x = layer(x, lengths)
        return x.transpose(0, 1)


class HybridAttention(nn.Module):
    """Query (B, 2 g), keys (B, T, d), last alignment (B, T) -> alignment (B, T): content and location."""

    def __init__(self, query: int, size: int, filters: int, kernel: int) -> None:
        super().__init__()
        self.padding = ((kernel - 1) // 2, kernel // 2)
        self.query = nn.Linear(query, size, bias=False)
        self.locate = nn.Conv1d(1, filters, kernel, bias=False)
        self.location = nn.Linear(filters, size, bias=False)
        self.bias = nn.Parameter(torch.zeros(size))
        self.energy = nn.Linear(size, 1, bias=False)

    def forward(self, query: Tensor, keys: Tensor, alignment: Tensor) -> Tensor:
        located = self.locate(F.pad(alignment.unsqueeze(1), self.padding)).transpose(1, 2)
        mixed = torch.tanh(keys + self.location(located) + self.query(query).unsqueeze(1) + self.bias)
        return self.energy(mixed).squeeze(-1).softmax(-1)


class DecoderStep(nn.Module):
    """One output: previous one-hot (B, vocab), context, alignment, both cells' states -> logits and all of those."""

    def __init__(self, vocab: int, memory: int, query: int, hidden: int, size: int, filters: int, kernel: int) -> None:
        super().__init__()
        self.query, self.hidden = query, hidden
        self.attention_cell = LSTMCell(vocab + memory, query)
        self.attention = HybridAttention(2 * query, size, filters, kernel)
        self.cell = LSTMCell(query + memory, hidden)
        self.head = nn.Linear(hidden, vocab)

    def forward(
        self, previous: Tensor, memory: Tensor, keys: Tensor, state: tuple[Tensor, ...]
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        context, alignment, query_cell, query, cell, hidden = state
        query_cell, query = self.attention_cell(torch.cat([previous, context], -1), query_cell, query)
        alignment = self.attention(torch.cat([query_cell, query], -1), keys, alignment)
        context = (alignment.unsqueeze(1) @ memory).squeeze(1)
        cell, hidden = self.cell(torch.cat([query, context], -1), cell, hidden)
        return self.head(hidden), (context, alignment, query_cell, query, cell, hidden)


class Recognizer(nn.Module):
    """Features (T, B, features), lengths (B,) and previous targets (U, B) -> logits (U, B, vocab).

    In training the decoder's weights carry normal noise, drawn anew each step, and a target is replaced by a draw
    from the last output with chance ``sampling`` (scheduled sampling).
    """

    def __init__(self, encoder: Encoder, keys: nn.Linear, decoder: DecoderStep, noise: float, sampling: float) -> None:
        super().__init__()
        self.encoder, self.keys, self.decoder = encoder, keys, decoder
        self.noise, self.sampling = noise, sampling

    def forward(self, features: Tensor, lengths: Tensor, targets: Tensor) -> Tensor:
        memory = self.encoder(features, lengths)
        keys = self.keys(memory)
        weights: dict[str, Tensor] = dict(self.decoder.named_parameters())
        if self.training:
            matrices = [name for name, weight in weights.items() if weight.dim() > 1]
            weights |= {name: weights[name] + self.noise * torch.randn_like(weights[name]) for name in matrices}
        batch, time, width = memory.shape
        query, hidden = self.decoder.query, self.decoder.hidden
        state = tuple(memory.new_zeros(batch, size) for size in (width, time, query, query, hidden, hidden))
        identity = torch.eye(self.decoder.head.out_features, device=memory.device)
        outputs: list[Tensor] = []
        for target in targets.unbind(0):
            previous = self._sample(outputs[-1], target) if self.training and outputs else target
            logits, state = functional_call(self.decoder, weights, (identity[previous], memory, keys, state))
            outputs.append(logits)
        return torch.stack(outputs)

    def _sample(self, logits: Tensor, target: Tensor) -> Tensor:
        drawn = logits.softmax(-1).multinomial(1).squeeze(1)
        return torch.where(torch.rand(target.shape, device=target.device) < self.sampling, drawn, target)


@trained(lr=0.1, clip=5.0)
def speech(
    batch: int = 32,
    seq: int = 96,
    target_seq: int = 24,
    features: int = 40,
    hidden: int = 1024,
    query: int = 512,
    decoder: int = 512,
    keys: int = 128,
    filters: int = 4,
    kernel: int = 50,
    vocab: int = 31,
    noise: float = 0.01,
    sampling: float = 0.1,
) -> Parts:
    """Speech recognition: pyramid of LSTMs, hybrid attention; 71 M parameters."""
    model = Recognizer(
        Encoder(features, hidden),
        nn.Linear(2 * hidden, keys),
        DecoderStep(vocab, 2 * hidden, query, decoder, keys, filters, kernel),
        noise,
        sampling,
    )
    sound = torch.randn(seq, batch, features)
    lengths = torch.randint((seq + 1) // 2, seq + 1, (batch,))
    targets, labels = tokens(vocab, 2, target_seq, batch).unbind(0)
    return model, [sound, lengths, targets], lambda logits: next_token_loss(logits, labels, 0)
