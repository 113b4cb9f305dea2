"""Models of the ``transformers`` library, with random weights: nothing is ever downloaded."""

from __future__ import annotations

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
    config = GPT2Config(
        vocab_size=vocab,
        n_positions=positions,
        n_embd=hidden,
        n_layer=layers,
        n_head=heads,
        resid_pdrop=dropout,
        embd_pdrop=dropout,
        attn_pdrop=dropout,
        use_cache=False,
        bos_token_id=None,
        eos_token_id=None,
    )
    return _causal(config, batch, seq, attention, dtype)


def _llama_config(
    seq: int, hidden: int, layers: int, heads: int, kv_heads: int, intermediate: int, vocab: int
) -> dict[str, Any]:
    """Settings that Llama and Mixtral have both."""
    head_size(hidden, heads, kv_heads)
    return {
        "vocab_size": vocab,
        "hidden_size": hidden,
        "intermediate_size": intermediate,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "max_position_embeddings": seq,
        "use_cache": False,
        "bos_token_id": None,
        "eos_token_id": None,
    }


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
    config = LlamaConfig(**_llama_config(seq, hidden, layers, heads, kv_heads, intermediate, vocab))
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
    shared = _llama_config(seq, hidden, layers, heads, kv_heads, intermediate, vocab)
    choose("dispatch", dispatch, ("grouped_mm", "batched_mm", "eager"))
    config = MixtralConfig(**shared, num_local_experts=experts, num_experts_per_tok=top, output_router_logits=False)
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
    config = T5Config(
        vocab_size=vocab,
        d_model=hidden,
        d_kv=head_size,
        d_ff=intermediate,
        num_layers=layers,
        num_heads=heads,
        dropout_rate=dropout,
        use_cache=False,
    )
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
    config = BertConfig(
        vocab_size=vocab,
        hidden_size=hidden,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        intermediate_size=intermediate,
        max_position_embeddings=positions,
        hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=dropout,
    )
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
    config = ViTConfig(
        image_size=image,
        patch_size=patch,
        hidden_size=hidden,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        intermediate_size=intermediate,
    )
    config.num_labels = classes
    model = _built(AutoModelForImageClassification, config, attention, dtype)
    images = torch.randn(batch, 3, image, image, dtype=as_dtype(dtype))
    return model, {"pixel_values": images, "labels": torch.randint(0, classes, (batch,))}, _own_loss
