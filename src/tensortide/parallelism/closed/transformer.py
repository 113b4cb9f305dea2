"""A transformer decoder by its hyperparameters: parameters and FLOPs, in the conventions that published tables use."""

from __future__ import annotations

import re

import msgspec

from tensortide.errors import TensortideError
from tensortide.parallelism.closed.published import PUBLISHED

_SETTING = re.compile(r"([a-z_]+)=([0-9_]+)")


class Transformer(msgspec.Struct, frozen=True, kw_only=True):
    """Hyperparameters of a decoder. 0 stands for the usual value: ``feedforward`` 4 hidden, ``kv_heads`` all heads.

    ``gated`` feed-forward layers have three matrices. An ``untied`` head has a matrix of its own. Of ``experts``
    feed-forward layers (0: one, without a router) each token takes ``active``.
    """

    layers: int
    hidden: int
    heads: int
    seq: int = 2048
    vocab: int = 51200
    feedforward: int = 0
    kv_heads: int = 0
    gated: bool = False
    untied: bool = False
    experts: int = 0
    active: int = 1

    def __post_init__(self) -> None:
        for name in ("layers", "hidden", "heads", "seq", "vocab", "active"):
            if getattr(self, name) < 1:
                raise TensortideError(f"a transformer with {name}={getattr(self, name)}: it takes at least 1")
        if self.hidden % self.heads:
            raise TensortideError(f"hidden/heads = {self.hidden}/{self.heads} is no whole number")
        if self.heads % self.kv:
            raise TensortideError(f"heads/kv_heads = {self.heads}/{self.kv_heads} is no whole number")
        if self.experts and self.active > self.experts:
            raise TensortideError(
                f"active={self.active} of experts={self.experts}: a token takes no more than there are"
            )

    @property
    def ffn(self) -> int:
        """Width of the feed-forward layer."""
        return self.feedforward or 4 * self.hidden

    @property
    def kv(self) -> int:
        """Heads of keys and of values."""
        return self.kv_heads or self.heads

    @property
    def attention_weights(self) -> int:
        """Elements of the four projections of a layer."""
        return 2 * self.hidden**2 + 2 * self.hidden * self.hidden * self.kv // self.heads

    @property
    def expert_weights(self) -> int:
        """Elements of one feed-forward layer."""
        return (3 if self.gated else 2) * self.hidden * self.ffn

    @property
    def layer_weights(self) -> int:
        """Elements of the matrices of a layer: 12 hidden**2 as a rule."""
        return self.attention_weights + max(1, self.experts) * self.expert_weights

    @property
    def active_weights(self) -> int:
        """Elements of the matrices of a layer that a token meets."""
        return self.attention_weights + (self.active if self.experts else 1) * self.expert_weights

    @property
    def embedding_weights(self) -> int:
        """Elements of the word embedding, which the head shares unless it is untied."""
        return self.vocab * self.hidden

    @property
    def head_weights(self) -> int:
        """Elements of a head of its own."""
        return self.embedding_weights if self.untied else 0

    @property
    def second_products(self) -> int:
        """Elements of every second matrix of a layer, as its products run: keys, the output of attention, and the
        second of the feed-forward layer."""
        return self.hidden**2 * self.kv // self.heads + self.hidden**2 + self.hidden * self.ffn

    @property
    def parameters(self) -> int:
        """Elements of all matrices; biases, normalizations and positions are left out (below 0.1 %)."""
        return self.layers * self.layer_weights + self.embedding_weights + self.head_weights

    def flops(self, samples: int, *, head: bool = True, causal: bool = False, recompute: bool = False) -> int:
        """FLOPs of a step of ``samples`` sequences: 6 per matrix element and token (forward and backward), attention 12
        layers hidden seq per token (``causal``: half), the ``head`` or not; ``recompute`` adds the layers' forward."""
        tokens = samples * self.seq
        attention = (6 if causal else 12) * self.layers * self.hidden * self.seq
        layers = 6 * self.layers * self.active_weights + attention
        return tokens * (layers * (4 if recompute else 3) // 3 + (6 * self.embedding_weights if head else 0))


_FLAGS = ("gated", "untied")


def transformer(text: str) -> Transformer:
    """Read ``layers=96,hidden=12288,heads=96,seq=2048,vocab=51200``; also feedforward, kv_heads, gated, untied,
    experts, active. A published model by name, ``llama3-8b``, may stand before settings, which replace its own.

    Raises TensortideError for a setting that is none, or given twice, and where layers, hidden or heads are missing.
    """
    named, _, rest = text.strip().partition(",")
    published = PUBLISHED.get(named.strip().lower())
    given = _settings(text if published is None else rest) if published is None or rest else {}
    given = (_settings(published) if published is not None else {}) | given
    if missing := [name for name in ("layers", "hidden", "heads") if name not in given]:
        raise TensortideError(f"a transformer needs {', '.join(missing)}: layers=96,hidden=12288,heads=96")
    return msgspec.convert(given | {name: bool(given[name]) for name in _FLAGS if name in given}, Transformer)


def _settings(text: str) -> dict[str, int]:
    given: dict[str, int] = {}
    names = Transformer.__struct_fields__
    for part in text.split(","):
        found = _SETTING.fullmatch(part.strip())
        if found is None or found[1] not in names:
            raise TensortideError(
                f"{part.strip()!r} is no setting of a transformer: write NAME=NUMBER of {', '.join(names)}; published "
                f"models are {', '.join(PUBLISHED)}"
            )
        if found[1] in given:
            raise TensortideError(f"a transformer has two values of {found[1]}")
        given[found[1]] = int(found[2])
    return given
