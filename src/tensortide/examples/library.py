"""Models of the ``transformers`` library, with random weights: nothing is ever downloaded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import (
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForImageClassification,
    AutoModelForMaskedLM,
    AutoModelForSeq2SeqLM,
    BertConfig,
    GPT2Config,
    LlamaConfig,
    MixtralConfig,
    PreTrainedConfig,
    T5Config,
    ViTConfig,
)

from tensortide.examples.attention import check_attention, check_lengths, head_size
from tensortide.examples.training import Parts, as_dtype, choose, divide, tokens, trained
from tensortide.workload import legal

__all__ = ["hf_bert", "hf_gpt2", "hf_llama", "hf_mixtral", "hf_t5", "hf_vit"]

_NO_ENDS = {"bos_token_id": None, "eos_token_id": None}
"""No token begins or ends a text: the library's own are beyond small vocabularies."""


def _config(
    kind: Callable[..., PreTrainedConfig], hidden: int, layers: int, heads: int, **more: Any
) -> PreTrainedConfig:
    """A configuration by the names that all of the library's have; it keeps no keys and values from step to step."""
    return kind(hidden_size=hidden, num_hidden_layers=layers, num_attention_heads=heads, use_cache=False, **more)


def _built(family: Any, config: PreTrainedConfig, attention: str, dtype: str, **options: str) -> Any:
    check_attention(attention)
    return family.from_config(config, attn_implementation=attention, dtype=as_dtype(dtype), **options)


def _own_loss(output: Any) -> Tensor:
    """The loss that a model computes itself when it is given ``labels``."""
    return output.loss


def _causal(config: PreTrainedConfig, batch: int, seq: int, attention: str, dtype: str, **options: str) -> Parts:
    model = _built(AutoModelForCausalLM, config, attention, dtype, **options)
    model.loss_type = "ForCausalLM"  # what the library falls back to for GPT-2, with a warning
    ids = tokens(config.vocab_size, batch, seq)
    return model, {"input_ids": ids, "labels": ids}, _own_loss


@legal("hidden % heads == 0", "seq <= positions")
@trained(lr=3e-4, clip=1.0, optimizer="adamw")
def hf_gpt2(
    batch: int = 8,
    seq: int = 1024,
    hidden: int = 768,
    layers: int = 12,
    heads: int = 12,
    vocab: int = 50257,
    positions: int = 1024,
    dropout: float = 0.1,
    attention: str = "sdpa",
    dtype: str = "float32",
) -> Parts:
    """GPT-2 of transformers; small by default, 124 M parameters."""
    check_lengths(hidden, heads, seq, positions)
    dropouts = dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), dropout)
    sizes = {"vocab_size": vocab, "n_positions": positions, **_NO_ENDS}
    config = _config(GPT2Config, hidden, layers, heads, **sizes, **dropouts)
    return _causal(config, batch, seq, attention, dtype)


def _llama_sizes(seq: int, hidden: int, heads: int, kv_heads: int, intermediate: int, vocab: int) -> dict[str, Any]:
    """Settings that Llama and Mixtral have both."""
    head_size(hidden, heads, kv_heads)
    sizes = {"vocab_size": vocab, "intermediate_size": intermediate, "num_key_value_heads": kv_heads}
    return {**sizes, "max_position_embeddings": seq, **_NO_ENDS}


@legal("hidden % (2 * heads) == 0", "heads % kv_heads == 0")
@trained(lr=3e-4, clip=1.0, optimizer="adamw")
def hf_llama(
    batch: int = 8,
    seq: int = 512,
    hidden: int = 512,
    layers: int = 8,
    heads: int = 8,
    kv_heads: int = 2,
    intermediate: int = 1376,
    vocab: int = 32000,
    attention: str = "sdpa",
    dtype: str = "float32",
) -> Parts:
    """Llama of transformers, grouped-query attention; 55 M parameters by default.

    Llama 3 70B is ``layers=80 hidden=8192 heads=64 kv_heads=8 intermediate=28672 vocab=128256 dtype=bfloat16``.
    """
    sizes = _llama_sizes(seq, hidden, heads, kv_heads, intermediate, vocab)
    config = _config(LlamaConfig, hidden, layers, heads, **sizes)
    return _causal(config, batch, seq, attention, dtype)


@legal("hidden % (2 * heads) == 0", "heads % kv_heads == 0", "top <= experts")
@trained(lr=3e-4, clip=1.0, optimizer="adamw")
def hf_mixtral(
    batch: int = 8,
    seq: int = 512,
    hidden: int = 512,
    layers: int = 8,
    heads: int = 8,
    kv_heads: int = 2,
    intermediate: int = 1376,
    experts: int = 8,
    top: int = 2,
    vocab: int = 32000,
    dispatch: str = "grouped_mm",
    attention: str = "sdpa",
    dtype: str = "bfloat16",
) -> Parts:
    """Mixtral of transformers: top-2 of 8 experts by grouped products.

    ``dispatch="grouped_mm"`` keeps all shapes fixed; on fake tensors it takes bfloat16 only, which is the default
    here for that reason. ``"batched_mm"`` copies an expert's weights for every token (any type, small sizes only);
    ``"eager"`` loops over the experts that were hit, so it runs on real tensors only.
    """
    sizes = _llama_sizes(seq, hidden, heads, kv_heads, intermediate, vocab)
    routing = {"num_local_experts": experts, "num_experts_per_tok": top, "output_router_logits": False}
    choose("dispatch", dispatch, ("grouped_mm", "batched_mm", "eager"))
    config = _config(MixtralConfig, hidden, layers, heads, **sizes, **routing)
    return _causal(config, batch, seq, attention, dtype, experts_implementation=dispatch)


@trained(lr=1e-3, clip=1.0, optimizer="adamw")
def hf_t5(
    batch: int = 8,
    source_seq: int = 512,
    target_seq: int = 128,
    hidden: int = 512,
    layers: int = 6,
    heads: int = 8,
    head_size: int = 64,
    intermediate: int = 2048,
    vocab: int = 32128,
    dropout: float = 0.1,
    attention: str = "sdpa",
    dtype: str = "float32",
) -> Parts:
    """T5 of transformers, an encoder-decoder; small by default, 61 M parameters."""
    sizes = {"vocab_size": vocab, "d_kv": head_size, "d_ff": intermediate}
    config = _config(T5Config, hidden, layers, heads, **sizes, dropout_rate=dropout)
    model = _built(AutoModelForSeq2SeqLM, config, attention, dtype)
    source, target, labels = tokens(vocab, batch, source_seq), *tokens(vocab, 2, batch, target_seq).unbind()
    return model, {"input_ids": source, "decoder_input_ids": target, "labels": labels}, _own_loss


@legal("hidden % heads == 0", "seq <= positions")
@trained(lr=1e-4, clip=1.0, optimizer="adamw")
def hf_bert(
    batch: int = 32,
    seq: int = 128,
    hidden: int = 768,
    layers: int = 12,
    heads: int = 12,
    intermediate: int = 3072,
    vocab: int = 30522,
    positions: int = 512,
    dropout: float = 0.1,
    objective: str = "pooled",
    attention: str = "sdpa",
    dtype: str = "float32",
) -> Parts:
    """BERT of transformers; base by default, 109 M parameters.

    ``objective="pooled"`` is the encoder with pooler, whose pooled vector is regressed to a random one;
    ``"masked"`` is the encoder with the library's head for masked tokens instead (and its parameters).
    """
    check_lengths(hidden, heads, seq, positions)
    choose("objective", objective, ("pooled", "masked"))
    dropouts = dict.fromkeys(("hidden_dropout_prob", "attention_probs_dropout_prob"), dropout)
    sizes = {"vocab_size": vocab, "intermediate_size": intermediate, "max_position_embeddings": positions}
    config = _config(BertConfig, hidden, layers, heads, **sizes, **dropouts)
    model = _built(AutoModel if objective == "pooled" else AutoModelForMaskedLM, config, attention, dtype)
    ids = tokens(vocab, batch, seq)
    if objective == "masked":
        return model, {"input_ids": ids, "labels": ids}, _own_loss
    wanted = torch.randn(batch, hidden, dtype=as_dtype(dtype))
    return model, {"input_ids": ids}, lambda output: F.mse_loss(output.pooler_output, wanted)


@legal("hidden % heads == 0", "image % patch == 0")
@trained(lr=1e-3, clip=1.0, optimizer="adamw")
def hf_vit(
    batch: int = 32,
    image: int = 224,
    patch: int = 16,
    hidden: int = 768,
    layers: int = 12,
    heads: int = 12,
    intermediate: int = 3072,
    classes: int = 1000,
    attention: str = "sdpa",
    dtype: str = "float32",
) -> Parts:
    """Vision transformer of transformers; B/16 by default, 86.6 M parameters."""
    divide("image", image, "patch", patch)
    divide("hidden", hidden, "heads", heads)
    sizes = {"image_size": image, "patch_size": patch, "intermediate_size": intermediate, "num_labels": classes}
    config = _config(ViTConfig, hidden, layers, heads, **sizes)
    model = _built(AutoModelForImageClassification, config, attention, dtype)
    images = torch.randn(batch, 3, image, image, dtype=as_dtype(dtype))
    return model, {"pixel_values": images, "labels": torch.randint(0, classes, (batch,))}, _own_loss
