"""Settings at which every built-in workload runs for real in a fraction of a second.

Sizes that a model tells apart are distinct where that is legal, so that a mix-up of two of them shows.
"""

from __future__ import annotations

from typing import TypeAlias

from tensortide.examples import examples

Settings: TypeAlias = dict[str, int | float | str | bool]

LARGE = {
    "densenet",
    "diffusion",
    "hf_t5",
    "inception_v3",
    "inception_v4",
    "mobilenet_v2",
    "resnet",
    "resnet101",
    "resnet152",
    "resnet50",
    "speech",
    "vector_transformer",
}
"""Those with so many ops that tests of whole steps take seconds."""

OF_A_KIND = {"hf_bert", "hf_llama", "hf_mixtral", "hf_vit"}
"""Those that are built from another library as ``hf_gpt2`` is, and whose twins without it are examples, too."""

OTHER_SIZES = {example.name for example in examples() if example.of} - {"resnet18", "resnet18_cifar", "resnet50"}
"""Those that differ from others in their sizes alone."""

_IMAGES: Settings = {"batch": 2, "image": 32, "classes": 5}
_DECODER: Settings = {
    "batch": 2,
    "seq": 6,
    "hidden": 24,
    "layers": 2,
    "heads": 6,
    "kv_heads": 3,
    "intermediate": 20,
    "vocab": 29,
}

TINY: dict[str, Settings] = {
    "mlp": {"batch": 3, "inputs": 7, "hidden": 5, "layers": 2, "classes": 4},
    "alexnet": {"batch": 2, "image": 64, "classes": 5, "width": 2, "hidden": 6},
    "vgg": {"batch": 2, "depth": 11, "image": 32, "classes": 5, "width": 2, "hidden": 6},
    "resnet": {**_IMAGES, "depth": 50, "width": 4},
    "resnet18_cifar": {**_IMAGES, "image": 8, "width": 4},
    "resnet32_cifar": {**_IMAGES, "image": 8, "width": 4},
    "densenet": {**_IMAGES, "growth": 2, "stem": 4},
    "inception_v3": {**_IMAGES, "image": 75, "width": 2},
    "inception_v4": {**_IMAGES, "image": 75, "width": 2},
    "mobilenet_v2": {**_IMAGES, "image": 64, "width": 0.25},
    "unet": {"batch": 2, "height": 8, "width": 12, "classes": 3, "filters": 2, "levels": 2},
    "diffusion": {"batch": 2, "image": 8, "width": 8, "blocks": 1},
    "unrolled_gan": {"batch": 6, "latent": 5, "hidden": 7, "layers": 1, "unroll": 2},
    "vit": {
        "batch": 2,
        "image": 12,
        "patch": 4,
        "hidden": 8,
        "layers": 2,
        "heads": 2,
        "intermediate": 20,
        "classes": 5,
    },
    "bert": {
        "batch": 2,
        "seq": 6,
        "hidden": 8,
        "layers": 2,
        "heads": 2,
        "intermediate": 20,
        "vocab": 29,
        "positions": 7,
    },
    "encoder_lm": {"batch": 2, "seq": 6, "hidden": 8, "layers": 2, "heads": 2, "intermediate": 20, "vocab": 29},
    "gpt2": {"batch": 2, "seq": 6, "hidden": 8, "layers": 2, "heads": 2, "vocab": 29, "positions": 7},
    "llama": _DECODER,
    "mixtral": {**_DECODER, "experts": 4, "top": 2},
    "transformer": {
        "batch": 2,
        "source_seq": 5,
        "target_seq": 7,
        "hidden": 8,
        "layers": 2,
        "heads": 2,
        "intermediate": 20,
        "vocab": 29,
    },
    "vector_transformer": {
        "batch": 2,
        "source_seq": 5,
        "target_seq": 7,
        "hidden": 8,
        "encoder_layers": 2,
        "decoder_layers": 1,
        "heads": 2,
        "intermediate": 20,
    },
    "lstm": {"batch": 2, "seq": 5, "inputs": 3, "hidden": 4, "layers": 2, "classes": 6},
    "unrolled_rnn": {"batch": 2, "seq": 5, "inputs": 3, "hidden": 4},
    "rnn_lm": {"batch": 2, "seq": 5, "hidden": 4, "layers": 2, "vocab": 29},
    "word_lm": {"batch": 3, "seq": 5, "hidden": 4, "layers": 2, "vocab": 29},
    "char_lm": {"batch": 3, "seq": 5, "hidden": 4, "depth": 3, "vocab": 29},
    "nmt": {"batch": 3, "source_seq": 5, "target_seq": 4, "hidden": 6, "vocab": 29},
    "speech": {
        "batch": 2,
        "seq": 9,
        "target_seq": 4,
        "features": 5,
        "hidden": 3,
        "query": 4,
        "decoder": 6,
        "keys": 7,
        "filters": 2,
        "kernel": 4,
        "vocab": 11,
    },
    "treelstm": {"batch": 2, "depth": 2, "hidden": 4, "vocab": 29, "classes": 5},
    "sum_treelstm": {"batch": 2, "depth": 2, "inputs": 3, "hidden": 4},
    "similarity_treelstm": {"batch": 2, "depth": 2, "inputs": 3, "hidden": 4, "compared": 6, "vocab": 29},
    "word2vec": {"batch": 2, "seq": 9, "window": 2, "skips": 3, "hidden": 4, "vocab": 29, "negatives": 6},
    "hf_gpt2": {"batch": 2, "seq": 6, "hidden": 8, "layers": 1, "heads": 2, "vocab": 29, "positions": 7},
    "hf_llama": {**_DECODER, "layers": 1},
    "hf_mixtral": {**_DECODER, "layers": 1, "intermediate": 16, "experts": 4, "top": 2},
    "hf_t5": {
        "batch": 2,
        "source_seq": 5,
        "target_seq": 7,
        "hidden": 8,
        "layers": 1,
        "heads": 2,
        "head_size": 4,
        "intermediate": 20,
        "vocab": 29,
    },
    "hf_bert": {
        "batch": 2,
        "seq": 6,
        "hidden": 8,
        "layers": 1,
        "heads": 2,
        "intermediate": 20,
        "vocab": 29,
        "positions": 7,
    },
    "hf_vit": {
        "batch": 2,
        "image": 12,
        "patch": 4,
        "hidden": 8,
        "layers": 1,
        "heads": 2,
        "intermediate": 20,
        "classes": 5,
    },
}

for _preset in examples():
    if _preset.of:
        _sizes = {name: value for name, value in TINY[_preset.of].items() if name not in _preset.fixed}
        TINY.setdefault(_preset.name, _sizes)
