"""Translation: Luong et al., "Effective Approaches to Attention-based Neural Machine Translation", 2015; Vaswani et
al., "Attention Is All You Need", 2017.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tensortide.examples.attention import attend, check_attention, merge_heads, sinusoids, split_heads
from tensortide.examples.recurrent import LSTMCell
from tensortide.examples.training import Parts, divide, next_token_loss, tokens, trained
from tensortide.workload import legal

__all__ = ["nmt", "transformer", "vector_transformer"]


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
        return self.head(self.decoder(self.target(target), memory, mask, cell, hidden))


@trained(lr=1.0, clip=5.0)
def nmt(
    batch: int = 128,
    source_seq: int = 19,
    target_seq: int = 19,
    hidden: int = 1024,
    vocab: int = 36548,
    dropout: float = 0.2,
) -> Parts:
    """Recurrent translation: bidirectional encoder, attention; 147 M parameters."""
    model = Translator(vocab, hidden, dropout)
    source, target, labels = tokens(vocab, source_seq, batch), *tokens(vocab, 2, target_seq, batch).unbind(0)
    lengths = torch.randint((source_seq + 1) // 2, source_seq + 1, (batch,))
    mask = torch.arange(source_seq).unsqueeze(1) < lengths
    return model, [source, mask, target], lambda logits: next_token_loss(logits, labels, 0)


class Attention(nn.Module):
    """Queries (B, S, hidden) over a memory (B, T, hidden) -> (B, S, hidden)."""

    def __init__(self, hidden: int, heads: int, attention: str) -> None:
        super().__init__()
        self.heads = heads
        self.attention = attention
        self.query, self.key, self.value, self.out = (nn.Linear(hidden, hidden, bias=False) for _ in range(4))

    def forward(self, x: Tensor, memory: Tensor, mask: Tensor | None = None, causal: bool = False) -> Tensor:
        query = split_heads(self.query(x), self.heads)
        key, value = (split_heads(project(memory), self.heads) for project in (self.key, self.value))
        mixed = attend(query, key, value, attention=self.attention, mask=mask, causal=causal)
        return self.out(merge_heads(mixed))


class Layer(nn.Module):
    """(B, S, hidden) -> (B, S, hidden); each part is added to its input and normalized after.

    An encoder layer is self-attention and feed-forward; a decoder layer attends to the memory between them.
    """

    def __init__(
        self, hidden: int, heads: int, intermediate: int, dropout: float, attention: str, decoder: bool
    ) -> None:
        super().__init__()
        self.self_attention = Attention(hidden, heads, attention)
        self.norm1 = nn.LayerNorm(hidden)
        self.cross_attention = Attention(hidden, heads, attention) if decoder else None
        self.norm2 = nn.LayerNorm(hidden) if decoder else None
        self.feed_forward = nn.Sequential(nn.Linear(hidden, intermediate), nn.ReLU(), nn.Linear(intermediate, hidden))
        self.norm3 = nn.LayerNorm(hidden)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, mask: Tensor, memory: Tensor | None = None) -> Tensor:
        """``mask`` (B, 1, 1, source) is True at source tokens and False at padding."""
        if self.cross_attention is None or self.norm2 is None or memory is None:
            x = self.norm1(x + self.dropout(self.self_attention(x, x, mask)))
        else:
            x = self.norm1(x + self.dropout(self.self_attention(x, x, causal=True)))
            x = self.norm2(x + self.dropout(self.cross_attention(x, memory, mask)))
        return self.norm3(x + self.dropout(self.feed_forward(x)))


class Transformer(nn.Module):
    """Source ids (B, S), their mask (B, S) and target ids (B, T) -> logits (B, T, vocab).

    One embedding matrix serves both languages and the output product, as in section 3.4 of the paper.
    """

    positions: Tensor

    def __init__(
        self, vocab: int, seq: int, hidden: int, encoder: list[Layer], decoder: list[Layer], dropout: float
    ) -> None:
        super().__init__()
        self.scale = math.sqrt(hidden)
        self.tokens = nn.Embedding(vocab, hidden)
        nn.init.normal_(self.tokens.weight, std=hidden**-0.5)
        self.encoder, self.decoder = nn.ModuleList(encoder), nn.ModuleList(decoder)
        self.dropout = nn.Dropout(dropout)
        self.register_buffer("positions", sinusoids(torch.arange(seq), hidden), persistent=False)

    def embed(self, ids: Tensor) -> Tensor:
        return self.dropout(self.tokens(ids) * self.scale + self.positions[: ids.shape[1]])

    def forward(self, source: Tensor, mask: Tensor, target: Tensor) -> Tensor:
        mask = mask[:, None, None, :]
        memory = self.embed(source)
        for layer in self.encoder:
            memory = layer(memory, mask)
        x = self.embed(target)
        for layer in self.decoder:
            x = layer(x, mask, memory)
        return F.linear(x, self.tokens.weight)


@legal("hidden % heads == 0", "hidden % 2 == 0")
@trained(lr=1e-3, optimizer="adamw")
def transformer(
    batch: int = 32,
    source_seq: int = 128,
    target_seq: int = 128,
    hidden: int = 512,
    layers: int = 6,
    heads: int = 8,
    intermediate: int = 2048,
    vocab: int = 37000,
    dropout: float = 0.1,
    attention: str = "sdpa",
) -> Parts:
    """Encoder-decoder transformer for translation; base by default, 63 M parameters.

    Dropout is on the embeddings and on each part's output. Label smoothing 0.1, as in the paper.
    """
    divide("hidden", hidden, "heads", heads)
    divide("hidden", hidden, "sines and cosines", 2)
    longest = max(source_seq, target_seq)
    shape = (hidden, heads, intermediate, dropout, check_attention(attention))
    encoder, decoder = ([Layer(*shape, decoder=kind) for _ in range(layers)] for kind in (False, True))
    model = Transformer(vocab, longest, hidden, encoder, decoder, dropout)
    source, target, labels = tokens(vocab, batch, source_seq), *tokens(vocab, 2, batch, target_seq).unbind()
    lengths = torch.randint(source_seq // 2, source_seq + 1, (batch, 1))
    mask = torch.arange(source_seq) < lengths.clamp(min=1)

    def loss_fn(logits: Tensor) -> Tensor:
        return F.cross_entropy(logits.flatten(0, 1), labels.flatten(), label_smoothing=0.1)

    return model, [source, mask, target], loss_fn


@legal("hidden % heads == 0")
@trained(lr=0.1)
def vector_transformer(
    batch: int = 10,
    source_seq: int = 512,
    target_seq: int = 20,
    hidden: int = 512,
    encoder_layers: int = 12,
    decoder_layers: int = 6,
    heads: int = 16,
    intermediate: int = 2048,
    dropout: float = 0.1,
) -> Parts:
    """PyTorch's transformer between sequences of vectors; 63.1 M parameters.

    It has no embedding; each output vector is taken for logits.
    """
    divide("hidden", hidden, "heads", heads)
    model = nn.Transformer(hidden, heads, encoder_layers, decoder_layers, intermediate, dropout, batch_first=True)
    source, target = torch.randn(batch, source_seq, hidden), torch.randn(batch, target_seq, hidden)
    labels = tokens(hidden, batch, target_seq)
    return model, [source, target], lambda outputs: next_token_loss(outputs, labels)
