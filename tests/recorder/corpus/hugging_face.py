"""Models of the library ``transformers``, tiny, and what it generates."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import torch

from tests.recorder.steps import Step, trained

Inputs = Callable[[], dict[str, Any]]


class Model(NamedTuple):
    """The end of a class's name, inputs, and the settings of its configuration."""

    kind: str
    inputs: Inputs
    settings: dict[str, Any]


def _tokens(length: int = 12, mask: bool = False) -> dict[str, Any]:
    tokens = torch.randint(3, 50, (2, length))
    given = {"input_ids": tokens, "labels": tokens}
    if mask:
        given["attention_mask"] = (torch.arange(length)[None] < torch.tensor([[length], [length - 3]])).long()
    return given


def _images() -> dict[str, Any]:
    return {"pixel_values": torch.randn(2, 3, 32, 32), "labels": torch.randint(0, 3, (2,))}


def _pairs() -> dict[str, Any]:
    return {"input_ids": torch.randint(3, 50, (2, 8)), "pixel_values": torch.randn(2, 3, 32, 32), "return_loss": True}


def _sounds() -> dict[str, Any]:
    return {"input_values": torch.randn(2, 800), "labels": torch.randint(1, 32, (2, 6))}


def _spectra() -> dict[str, Any]:
    return {"input_features": torch.randn(2, 16, 40), "labels": torch.randint(3, 50, (2, 6))}


def _boxes() -> dict[str, Any]:
    labels = [{"class_labels": torch.tensor([1, 2]), "boxes": torch.rand(2, 4)}]
    return {"pixel_values": torch.randn(1, 3, 64, 64), "labels": labels}


SIZE = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
TWICE = {"num_hidden_layers": 2}
"""Where layers share their weights, their masks, or differ in turn."""
SPECIAL = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
SMALL: dict[str, Any] = {**SIZE, **SPECIAL, "vocab_size": 50, "max_position_embeddings": 64}
SHARED = {**SMALL, "num_key_value_heads": 1}
DEBERTA = {**SMALL, "relative_attention": True, "pos_att_type": ["p2c", "c2p"]}
TWO_SIDES = {
    **{f"{side}_layers": 1 for side in ("encoder", "decoder")},
    **{f"{side}_attention_heads": 2 for side in ("encoder", "decoder")},
    "encoder_ffn_dim": 32,
    "decoder_ffn_dim": 32,
    "d_model": 16,
}
PATCHES = {**SIZE, "image_size": 32, "patch_size": 8}
SPEECH = {
    **SIZE,
    **TWICE,
    "conv_dim": [8, 8],
    "conv_stride": [5, 2],
    "conv_kernel": [10, 3],
    "num_conv_pos_embeddings": 4,
    "num_conv_pos_embedding_groups": 2,
    "vocab_size": 32,
    "num_feat_extract_layers": 2,
    "mask_time_length": 2,
    "ctc_loss_reduction": "mean",
}
STAGES = {"num_labels": 3, "hidden_sizes": [8, 16, 16, 16], "depths": [1, 1, 2, 1]}
RESNET = {"model_type": "resnet", "embedding_size": 8, "hidden_sizes": [8, 8, 16, 16], "depths": [1, 1, 1, 1]}
MASKED = partial(_tokens, mask=True)

MODELS = {
    "Bert": Model("ForMaskedLM", MASKED, SMALL),
    "Albert": Model("ForMaskedLM", _tokens, {**SMALL, **TWICE, "embedding_size": 16}),
    "DebertaV2": Model("ForMaskedLM", MASKED, DEBERTA),
    "Deberta": Model("ForMaskedLM", MASKED, DEBERTA),
    "Longformer": Model("ForMaskedLM", partial(_tokens, 16, True), {**SMALL, "attention_window": [8]}),
    "BigBird": Model("ForMaskedLM", partial(_tokens, 16), {**SMALL, "attention_type": "original_full"}),
    "Llama": Model("ForCausalLM", MASKED, {**SMALL, **TWICE}),
    "Gemma2": Model("ForCausalLM", _tokens, {**SHARED, **TWICE, "head_dim": 8}),
    "Qwen2": Model("ForCausalLM", MASKED, SHARED),
    "Qwen2Moe": Model("ForCausalLM", _tokens, {**SHARED, "num_experts": 4, "moe_intermediate_size": 16}),
    "Mamba": Model(
        "ForCausalLM", _tokens, {"hidden_size": 16, "num_hidden_layers": 1, "vocab_size": 50, "state_size": 4}
    ),
    "T5": Model(
        "ForConditionalGeneration",
        MASKED,
        {
            "d_model": 16,
            "d_kv": 8,
            "d_ff": 32,
            "num_layers": 2,
            "num_heads": 2,
            "vocab_size": 50,
            "decoder_start_token_id": 0,
        },
    ),
    "Bart": Model("ForConditionalGeneration", _tokens, {**TWO_SIDES, "vocab_size": 50}),
    "Swin": Model(
        "ForImageClassification",
        _images,
        {
            "image_size": 32,
            "patch_size": 4,
            "num_labels": 3,
            "embed_dim": 16,
            "depths": [1, 2],
            "num_heads": [2, 2],
            "window_size": 4,
        },
    ),
    "ConvNext": Model("ForImageClassification", _images, {**STAGES, "image_size": 32, "drop_path_rate": 0.1}),
    "Beit": Model("ForImageClassification", _images, {**PATCHES, "num_labels": 3, "drop_path_rate": 0.1}),
    "Segformer": Model(
        "ForImageClassification",
        _images,
        {
            **STAGES,
            "hidden_sizes": [8, 8, 16, 16],
            "depths": [1, 1, 1, 1],
            "num_attention_heads": [1, 1, 2, 2],
            "decoder_hidden_size": 16,
        },
    ),
    "CLIP": Model("Model", _pairs, {"text_config": SMALL, "vision_config": PATCHES, "projection_dim": 8}),
    "Wav2Vec2": Model("ForCTC", _sounds, SPEECH),
    "Whisper": Model(
        "ForConditionalGeneration",
        _spectra,
        {
            **TWO_SIDES,
            "encoder_layers": 2,
            "decoder_layers": 2,
            **SPECIAL,
            "vocab_size": 50,
            "num_mel_bins": 16,
            "decoder_start_token_id": 1,
            "max_source_positions": 20,
            "max_target_positions": 20,
            "suppress_tokens": None,
            "begin_suppress_tokens": None,
        },
    ),
    "Detr": Model(
        "ForObjectDetection",
        _boxes,
        {
            **TWO_SIDES,
            "num_queries": 5,
            "num_labels": 3,
            "backbone": None,
            "use_timm_backbone": False,
            "use_pretrained_backbone": False,
            "backbone_config": {**RESNET, "out_features": ["stage4"]},
        },
    ),
}


def _workload(name: str) -> Callable[[], Step]:
    """A training step of the model of that name."""

    def make() -> Step:
        import transformers

        kind, inputs, settings = MODELS[name]
        model = getattr(transformers, f"{name}{kind}")(getattr(transformers, f"{name}Config")(**settings)).train()
        given = inputs()

        def loss() -> torch.Tensor:
            out = model(**given)
            found: torch.Tensor = out.loss if getattr(out, "loss", None) is not None else out[0].sum()
            return found

        return trained(model, loss, torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9))

    make.__name__ = name.lower()
    return make


def generation() -> Step:
    from transformers import LlamaConfig, LlamaForCausalLM

    model, tokens = LlamaForCausalLM(LlamaConfig(**SMALL)).eval(), torch.randint(3, 50, (2, 6))
    return lambda: model.generate(tokens, max_new_tokens=3, do_sample=False)


def sampled_generation() -> Step:
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(n_embd=16, n_layer=2, n_head=2, vocab_size=50, n_positions=64, eos_token_id=2, bos_token_id=1)
    model, tokens = GPT2LMHeadModel(config).eval(), torch.randint(3, 50, (2, 6))
    return lambda: model.generate(tokens, max_new_tokens=4, do_sample=True, top_k=5)


WORKLOADS = {made.__name__: made for made in (*map(_workload, MODELS), generation, sampled_generation)}
