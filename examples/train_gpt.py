"""A small GPT that learns to continue a text letter by letter; the same losses with and without a memory budget.

python examples/train_gpt.py
python examples/train_gpt.py --budget 24MiB
"""

from __future__ import annotations

import argparse
import contextlib

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import tensortide

TEXT = """\
The tide comes in and the tide goes out. What the water covers is not gone: the stones keep their places, and the pools
keep their shapes, until the sea draws back and shows them again.
A harbour has room for so many boats. When another one comes, somebody has to leave; but a boat that leaves can be
called back, if one remembers the way that it came.
A keeper of the harbour wrote down every arrival: who came, from where, and how long the journey took. A boat with a
short way home was sent away first, for it would soon be back. A boat that came from far was left alone, and so was one
that somebody was about to board.
One winter the harbour was small and the fleet was large. The keeper sent boats away and called them back all night, and
in the morning all the fish had been landed, as if there had been room for everyone.
"""


class Block(nn.Module):
    """Causal self-attention and a multilayer perceptron, each added to what goes in."""

    def __init__(self, hidden: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.before, self.between = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
        self.qkv, self.out = nn.Linear(hidden, 3 * hidden), nn.Linear(hidden, hidden)
        self.mlp = nn.Sequential(nn.Linear(hidden, 4 * hidden), nn.GELU(), nn.Linear(4 * hidden, hidden))
        self.drop = nn.Dropout(0.1)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (
            part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in self.qkv(self.before(x)).chunk(3, -1)
        )
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
        x = x + self.drop(self.out(mixed))
        return x + self.drop(self.mlp(self.between(x)))


class GPT(nn.Module):
    """Letters in, scores of the next letters out; the embedding is used at both ends."""

    def __init__(self, vocab: int, seq: int, hidden: int, layers: int, heads: int) -> None:
        super().__init__()
        self.letters, self.places = nn.Embedding(vocab, hidden), nn.Embedding(seq, hidden)
        nn.init.normal_(self.letters.weight, std=0.02)
        self.blocks = nn.Sequential(*(Block(hidden, heads) for _ in range(layers)), nn.LayerNorm(hidden))

    def forward(self, ids: Tensor) -> Tensor:
        x = self.blocks(self.letters(ids) + self.places.weight[: ids.shape[1]])
        return x @ self.letters.weight.t()


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--budget", help="most memory for tensors, such as 24MiB; without it there is no limit")
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--seq", type=int, default=96)
    parser.add_argument("--hidden", type=int, default=96)
    parser.add_argument("--layers", type=int, default=4)
    options = parser.parse_args(arguments)

    torch.manual_seed(0)
    letters = sorted(set(TEXT))
    ids = torch.tensor([letters.index(letter) for letter in TEXT])
    model = GPT(len(letters), options.seq, options.hidden, options.layers, heads=4)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)

    with tensortide.budget(options.budget) if options.budget else contextlib.nullcontext():
        for step in range(options.steps):
            begins = torch.randint(0, len(ids) - options.seq, (options.batch, 1)) + torch.arange(options.seq)
            scores = model(ids[begins])
            loss = F.cross_entropy(scores.flatten(0, 1), ids[begins + 1].flatten())
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            print(step, loss.item().hex(), f"{loss.item():.4f}")


if __name__ == "__main__":
    main()
