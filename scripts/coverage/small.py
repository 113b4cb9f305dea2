"""Small configurations of transformers, and inputs of a model by the names of its arguments."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any

import torch

TOKENS, SAMPLES, FRAMES = 16, 16000, 200
"""Tokens of a text, samples of a sound, frames of a spectrogram."""
_DEEP = re.compile(r"num_\w*layers|n_layers?|depth|\w*_layers")
_PATTERNS = ("layer_types", "layers_block_type", "attention_types", "block_types", "mlp_layer_types")
_LAYERS = 2
_WORDS = 3000


def _inner(config: Any) -> list[Any]:
    """Return the configurations inside of one."""
    return [value for value in vars(config).values() if hasattr(value, "to_dict") and hasattr(value, "model_type")]


def shrink(config: Any) -> Any:
    """Leave few layers of a configuration, as many as it has kinds of, and a small vocabulary. Widths stay: a model on
    the device ``meta`` has no memory."""
    for inner in _inner(config):
        shrink(inner)
    for name, value in list(vars(config).items()):
        if isinstance(value, int) and value > _WORDS and (name == "vocab_size" or name.endswith("_token_id")):
            setattr(config, name, _WORDS if name == "vocab_size" else 3)
    depths = getattr(config, "depths", None)
    if isinstance(depths, list | tuple):
        config.depths = type(depths)([1] * len(depths))
        return config
    for name, count in list(vars(config).items()):
        if not isinstance(count, int) or isinstance(count, bool) or count <= _LAYERS or not _DEEP.fullmatch(name):
            continue
        left = max(_LAYERS, *(_kinds(getattr(config, pattern, None), count) for pattern in _PATTERNS))
        for other, value in list(vars(config).items()):
            if isinstance(value, list | tuple) and len(value) == count:
                setattr(config, other, type(value)(value[:left]))
        setattr(config, name, left)
    return config


def _kinds(pattern: object, count: int) -> int:
    """Count the layers up to the first of each kind."""
    if not isinstance(pattern, list | tuple) or len(pattern) != count:
        return 0
    return max(list(pattern).index(kind) for kind in set(pattern)) + 1


def find(config: Any, *names: str, default: Any = None) -> Any:
    """Return the first of ``names`` that a configuration, or one inside of it, has."""
    for name in names:
        value = getattr(config, name, None)
        if isinstance(value, int | list | tuple):
            return value
    for inner in _inner(config):
        found = find(inner, *names)
        if found is not None:
            return found
    return default


def inputs_of(model: Any, config: Any) -> dict[str, torch.Tensor]:
    """Return inputs for the arguments of a model that must be given, and for its main one."""
    arguments, kind = inspect.signature(model.forward).parameters, type(model).__name__
    made: dict[str, Callable[[], torch.Tensor]] = {
        "input_ids": _ids,
        "decoder_input_ids": _ids,
        "bbox": lambda: torch.zeros(1, TOKENS, 4, dtype=torch.long),
        "pixel_values": lambda: _pixels(config, kind, model.forward.__doc__ or ""),
        "pixel_values_videos": lambda: _video(config),
        "input_values": lambda: _sound(config, kind),
        "input_features": lambda: _spectrogram(config, kind),
        "image_grid_thw": lambda: torch.tensor([[1, 4, 4]]),
        "grid_thw": lambda: torch.tensor([[1, 4, 4]]),
        "attention_mask": _ids,
        "labels": _ids,
    }
    wanted = {name for name, given in arguments.items() if given.default is given.empty and given.kind.value < 2}
    wanted |= {model.main_input_name, "input_ids", "decoder_input_ids", "bbox"}
    if re.search("CausalLM|MaskedLM|ConditionalGeneration|LMHead", kind):
        wanted.add("labels")
    if "input_ids" in arguments and model.main_input_name == "input_values":
        wanted.discard("input_values")
    other = lambda: torch.randn(1, TOKENS, find(config, "hidden_size", default=64))  # noqa: E731
    return {name: made.get(name, other)() for name in arguments if name in wanted}


def _ids() -> torch.Tensor:
    return torch.ones(1, TOKENS, dtype=torch.long)


def _side(config: Any) -> int:
    size = find(config, "image_size", "crop_size", default=224)
    return int(size if isinstance(size, int) else size[0])


def _pixels(config: Any, kind: str, described: str) -> torch.Tensor:
    side, channels = _side(config), find(config, "num_channels", "in_channels", "in_chans", default=3)
    frames = find(config, "num_frames")
    channels = channels if isinstance(channels, int) else 3
    if isinstance(frames, int) and ("num_frames" in described or "ideo" in kind):
        return torch.randn(1, frames, channels, side, side)
    return torch.randn(1, channels, side, side)


def _video(config: Any) -> torch.Tensor:
    return torch.randn(1, find(config, "num_frames", "frames_per_clip", default=8), 3, _side(config), _side(config))


def _sound(config: Any, kind: str) -> torch.Tensor:
    bins = find(config, "num_mel_bins", "feature_size")
    if kind.startswith("AST") and isinstance(bins, int):
        return torch.randn(1, config.max_length, bins)
    return torch.randn(1, 1, SAMPLES) if re.match("Encodec|Dac|Mimi|.*Codec", kind) else torch.randn(1, SAMPLES)


def _spectrogram(config: Any, kind: str) -> torch.Tensor:
    bins = find(config, "num_mel_bins", "feature_size", "input_feat_per_channel", "input_size", default=80)
    return torch.randn(1, bins, 3000) if kind.startswith("Whisper") else torch.randn(1, FRAMES, bins)
