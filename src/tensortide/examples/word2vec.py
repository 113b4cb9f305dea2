"""Word vectors: Mikolov et al., "Distributed Representations of Words and Phrases", 2013 (skip-gram).

The loss is noise-contrastive estimation: Mnih and Teh, "A Fast and Simple Algorithm for Training Neural
Probabilistic Language Models", 2012.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tensortide.examples.training import Parts, tokens, trained
from tensortide.workload import legal

__all__ = ["word2vec"]


class SkipGram(nn.Module):
    """Centre and context ids (R,) -> logits (R, 1 + negatives): the true context first, then sampled words.

    Negatives are drawn log-uniformly, once for all rows; every logit is corrected by the log of its expected count.
    """

    def __init__(self, vocab: int, hidden: int, negatives: int) -> None:
        super().__init__()
        self.vocab, self.negatives = vocab, negatives
        self.words = nn.Embedding(vocab, hidden)
        self.contexts = nn.Embedding(vocab, hidden)
        self.bias = nn.Embedding(vocab, 1)
        nn.init.uniform_(self.words.weight, -1.0, 1.0)
        nn.init.normal_(self.contexts.weight, std=hidden**-0.5)
        nn.init.zeros_(self.bias.weight)

    def forward(self, centres: Tensor, contexts: Tensor) -> Tensor:
        span = math.log(self.vocab + 1)
        draw = torch.rand(self.negatives, device=centres.device)
        noise = ((draw * span).exp().long() - 1).clamp(0, self.vocab - 1)
        word = self.words(centres)
        true = (word * self.contexts(contexts)).sum(1, keepdim=True) + self.bias(contexts)
        false = word @ self.contexts(noise).t() + self.bias(noise).t()
        return torch.cat([true - self._log_count(contexts).unsqueeze(1), false - self._log_count(noise)], 1)

    def _log_count(self, ids: Tensor) -> Tensor:
        chance = torch.log((ids + 2) / (ids + 1)) / math.log(self.vocab + 1)
        return torch.log(self.negatives * chance)


@legal("seq > 2 * window")
@trained(lr=0.2, clip=5.0)
def word2vec(
    batch: int = 1,
    seq: int = 32,
    window: int = 8,
    skips: int = 8,
    hidden: int = 400,
    vocab: int = 40004,
    negatives: int = 64,
) -> Parts:
    """Skip-gram word vectors with sampled negatives; 32 M parameters.

    Each of the ``seq - 2 * window`` inner words of a sequence gives ``skips`` pairs with words of its window.
    """
    if seq <= 2 * window:
        raise ValueError(f"seq={seq} must be more than twice the window={window}")
    model = SkipGram(vocab, hidden, negatives)
    ids = tokens(vocab, batch, seq)
    where = torch.arange(window, seq - window).repeat_interleave(skips)
    side = torch.randint(0, 2, where.shape) * 2 - 1
    centres, contexts = ids[:, where], ids[:, where + side * torch.randint(1, window + 1, where.shape)]
    wanted = torch.zeros(centres.numel(), 1 + negatives)
    wanted[:, 0] = 1.0

    def loss_fn(logits: Tensor) -> Tensor:
        return F.binary_cross_entropy_with_logits(logits, wanted, reduction="none").sum(1).mean()

    return model, [centres.flatten(), contexts.flatten()], loss_fn
