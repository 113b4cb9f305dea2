"""Language models of the ``transformers`` library, with random weights: nothing is ever downloaded."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor, nn
from transformers import (
    AutoModelForCausalLM,
    AutoModelForSeq2SeqLM,
    GPT2Config,
    LlamaConfig,
    MixtralConfig,
    PreTrainedConfig,
    T5Config,
)

from tensortide.examples.attention import check_attention
from tensortide.examples.training import Step, as_dtype, choose, divide, tokens, training_step
from tensortide.workload import legal

__all__ = ["hf_gpt2", "hf_llama", "hf_mixtral", "hf_t5", "library_step"]


def library_step(
    model: nn.Module, inputs: Mapping[str, Tensor], labels: Tensor, optimizer: str, lr: float, train: bool
) -> Step:
    """One step with the loss that the model itself computes when it is given ``labels``."""
    given = {**inputs, "labels": labels} if train else inputs
    return training_step(model, given, lambda output: output.loss, optimizer, lr=lr, clip=1.0, train=train)


def _causal_step(
    config: PreTrainedConfig,
    batch: int,
    seq: int,
    attention: str,
    dtype: str,
    optimizer: str,
    train: bool,
    **options: str,
) -> Step:
    check_attention(attention)
    model = AutoModelForCausalLM.from_config(config, attn_implementation=attention, dtype=as_dtype(dtype), **options)
    model.loss_type = "ForCausalLM"  # what the library falls back to for GPT-2, with a warning
    ids = tokens(config.vocab_size, batch, seq)
    return library_step(model, {"input_ids": ids}, ids, optimizer, 3e-4, train)


@legal("hidden % heads == 0", "seq <= positions")
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
    optimizer: str = "adamw",
    train: bool = True,
) -> Step:
    """GPT-2 of transformers; small by default, 124 M parameters."""
    divide("hidden", hidden, "heads", heads)
    if seq > positions:
        raise ValueError(f"seq={seq} needs positions={seq} or more, got positions={positions}")
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
    return _causal_step(config, batch, seq, attention, dtype, optimizer, train)


@legal("hidden % (2 * heads) == 0", "heads % kv_heads == 0")
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
    optimizer: str = "adamw",
    train: bool = True,
) -> Step:
    """Llama of transformers, grouped-query attention; 55 M parameters by default.

    Llama 3 70B is ``layers=80 hidden=8192 heads=64 kv_heads=8 intermediate=28672 vocab=128256 dtype=bfloat16``.
    """
    size = divide("hidden", hidden, "heads", heads)
    divide("heads", heads, "kv_heads", kv_heads)
    divide("hidden / heads", size, "the pairs of a rotation", 2)
    config = LlamaConfig(
        vocab_size=vocab,
        hidden_size=hidden,
        intermediate_size=intermediate,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        max_position_embeddings=seq,
        use_cache=False,
        bos_token_id=None,
        eos_token_id=None,
    )
    return _causal_step(config, batch, seq, attention, dtype, optimizer, train)


@legal("hidden % (2 * heads) == 0", "heads % kv_heads == 0", "top <= experts")
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
    optimizer: str = "adamw",
    train: bool = True,
) -> Step:
    """Mixtral of transformers: top-2 of 8 experts by grouped products.

    ``dispatch="grouped_mm"`` keeps all shapes fixed; on fake tensors it takes bfloat16 only, which is the default
    here for that reason. ``"batched_mm"`` copies an expert's weights for every token (any type, small sizes only);
    ``"eager"`` loops over the experts that were hit, so it runs on real tensors only.
    """
    size = divide("hidden", hidden, "heads", heads)
    divide("heads", heads, "kv_heads", kv_heads)
    divide("hidden / heads", size, "the pairs of a rotation", 2)
    choose("dispatch", dispatch, ("grouped_mm", "batched_mm", "eager"))
    config = MixtralConfig(
        vocab_size=vocab,
        hidden_size=hidden,
        intermediate_size=intermediate,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        num_local_experts=experts,
        num_experts_per_tok=top,
        max_position_embeddings=seq,
        output_router_logits=False,
        use_cache=False,
        bos_token_id=None,
        eos_token_id=None,
    )
    return _causal_step(config, batch, seq, attention, dtype, optimizer, train, experts_implementation=dispatch)


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
    optimizer: str = "adamw",
    train: bool = True,
) -> Step:
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
    check_attention(attention)
    model = AutoModelForSeq2SeqLM.from_config(config, attn_implementation=attention, dtype=as_dtype(dtype))
    source, target, labels = tokens(vocab, batch, source_seq), *tokens(vocab, 2, batch, target_seq).unbind()
    return library_step(model, {"input_ids": source, "decoder_input_ids": target}, labels, optimizer, 1e-3, train)
