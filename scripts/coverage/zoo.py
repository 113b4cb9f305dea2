"""Architectures of transformers, timm, torchvision, diffusers and torchaudio, small and with random weights, and inputs
that follow from their configurations and the names of their arguments."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import torch

from scripts.coverage.small import TOKENS, inputs_of, shrink

_KINDS = 2
"""Classes of a model type that are built: the plain model, and one with a head."""
_PER_MODULE = 6
"""Architectures of a module of timm."""


class Architecture(NamedTuple):
    """A model by its name; ``variants`` build it with inputs: the first that runs counts for it, or ``every`` one."""

    name: str
    variants: list[Callable[[], tuple[Any, Any]]]
    every: bool = False


def transformers_models() -> Iterator[Architecture]:
    """Every model type that has a configuration, in its plain form and with its first head."""
    modeling_auto = importlib.import_module("transformers.models.auto.modeling_auto")
    configurations = importlib.import_module("transformers.models.auto.configuration_auto")
    tables = [value for name, value in vars(modeling_auto).items() if re.fullmatch(r"MODEL_\w*MAPPING", name)]
    for name in sorted(configurations.CONFIG_MAPPING_NAMES):
        kind = configurations.CONFIG_MAPPING[name]
        found = [table[kind] for table in tables if kind in table]
        flat = [one for entry in found for one in (entry if isinstance(entry, list | tuple) else [entry])]

        classes = list(dict.fromkeys(flat))[:_KINDS]
        yield Architecture(name, [partial(_configured, one, kind) for one in classes], every=True)


def _configured(model_class: Any, kind: Any) -> tuple[Any, Any]:
    config = shrink(kind())
    model = getattr(model_class, "_from_config", model_class)(config)
    return model, inputs_of(model, config)


def timm_models() -> Iterator[Architecture]:
    """Families of every module: names that differ before the first number."""
    timm = importlib.import_module("timm")
    registry = importlib.import_module("timm.models._registry")
    families: dict[tuple[str, str], str] = {}
    for name in timm.list_models():
        module = registry._model_entrypoints[name].__module__.rpartition(".")[2]
        families.setdefault((module, re.split(r"[_\d]", name)[0]), name)
    seen: dict[str, int] = {}
    for (module, _), name in sorted(families.items()):
        seen[module] = seen.get(module, 0) + 1
        if seen[module] <= _PER_MODULE:

            def build(name: str = name) -> tuple[Any, Any]:
                model = timm.create_model(name, pretrained=False)
                return model, (torch.randn(2, *model.default_cfg["input_size"]),)

            yield Architecture(name, [build])


def torchvision_models() -> Iterator[Architecture]:
    """Every model that is registered."""
    zoo = importlib.import_module("torchvision.models")
    for name in zoo.list_models():
        module = zoo.get_model_builder(name).__module__

        def build(name: str = name, module: str = module) -> tuple[Any, Any]:
            apart = {"weights_backbone": None} if re.search(r"detection|segmentation", module) else {}
            model = zoo.get_model(name, weights=None, **apart)
            side = 299 if name == "inception_v3" else 224
            if "detection" in module:
                boxes = torch.tensor([[5.0, 5.0, 60.0, 60.0], [20.0, 20.0, 90.0, 100.0]])
                target = {"boxes": boxes, "labels": torch.tensor([1, 2]), "keypoints": torch.ones(2, 17, 3)}
                return model, ([torch.randn(3, 128, 128)], [{**target, "masks": torch.ones(2, 128, 128).byte()}])
            if "optical_flow" in module:
                return model, (torch.randn(1, 3, 128, 128), torch.randn(1, 3, 128, 128))
            if "video" in module:
                side = 224 if re.search("mvit|swin", name) else 112
                return model, (torch.randn(2, 3, 16, side, side),)
            return model, (torch.randn(2, 3, side, side),)

        yield Architecture(name, [build])


def diffusers_models() -> Iterator[Architecture]:
    """Every class of a model, with a sample of the first shape that it takes."""
    models = importlib.import_module("diffusers.models")
    for package in ("transformers", "autoencoders", "unets", "controlnets"):
        path = importlib.import_module(f"{models.__name__}.{package}").__path__
        for module in pkgutil.iter_modules(path, f"{models.__name__}.{package}."):
            if not module.name.endswith("flax"):
                importlib.import_module(module.name)
    for kind in sorted(_below(models.modeling_utils.ModelMixin), key=lambda kind: str(kind.__name__)):
        yield Architecture(kind.__name__, [partial(_diffused, kind, i) for i in range(len(_SAMPLES))])


_SAMPLES: list[Callable[[int], tuple[int, ...]]] = [
    lambda c: (1, c, 32, 32),
    lambda c: (1, c, 5, 32, 32),
    lambda c: (1, 64, c),
    lambda c: (1, 5, c, 32, 32),
    lambda c: (1, 3, 64, 64),
    lambda c: (1, 3, 9, 64, 64),
    lambda c: (1, c, 4096),
]
"""Shapes of a sample of so many channels: images, videos, tokens, sounds."""


def _below(kind: Any) -> set[Any]:
    return {inner for one in kind.__subclasses__() for inner in (one, *_below(one))}


def _diffused(kind: Any, number: int) -> tuple[Any, Any]:
    parameters = inspect.signature(kind.__init__).parameters
    few = {name: 2 for name in parameters if re.search("num(_single)?_layers|num_refiner_layers", name)}
    model = kind(**few)
    config = dict(model.config)
    channels = next((config[n] for n in ("in_channels", "latent_channels") if isinstance(config.get(n), int)), 4)
    names = ("joint_attention_dim", "cross_attention_dim", "caption_channels", "text_embed_dim", "text_dim")
    width = next((config[name] for name in names if isinstance(config.get(name), int)), 768)
    known: dict[str, Callable[[], Any]] = {
        **dict.fromkeys(("sample", "hidden_states", "x", "z"), lambda: torch.randn(_SAMPLES[number](channels))),
        **dict.fromkeys(("timestep", "timesteps", "t", "guidance"), lambda: torch.tensor([1.0])),
        **dict.fromkeys(("encoder_hidden_states", "prompt_embeds"), lambda: torch.randn(1, TOKENS, width)),
        "pooled_projections": lambda: torch.randn(1, config.get("pooled_projection_dim") or 768),
        "img_ids": lambda: torch.zeros(64, 3),
        "txt_ids": lambda: torch.zeros(TOKENS, 3),
        "controlnet_cond": lambda: torch.randn(1, 3, 256, 256),
    }
    arguments = inspect.signature(model.forward).parameters
    return model, {name: known[name]() for name in arguments if name in known}


def torchaudio_models() -> Iterator[Architecture]:
    """The models of torchaudio, by hand."""
    m = importlib.import_module("torchaudio.models")

    def lengths(*values: int) -> torch.Tensor:
        return torch.tensor(values)

    def words(*shape: int) -> torch.Tensor:
        return torch.ones(shape, dtype=torch.long)

    def sound() -> tuple[torch.Tensor]:
        return (r(2, 8000),)

    r = torch.randn
    made: dict[str, Callable[[], tuple[Any, Any]]] = {
        "conformer": lambda: (m.Conformer(80, 4, 128, 2, 31), (r(2, 50, 80), lengths(50, 40))),
        "emformer": lambda: (m.Emformer(64, 4, 128, 2, 16, right_context_length=4), (r(2, 20, 64), lengths(20, 16))),
        "conv_tasnet": lambda: (m.conv_tasnet_base(), (r(2, 1, 4000),)),
        "deepspeech": lambda: (m.DeepSpeech(40), (r(2, 1, 30, 40),)),
        "hdemucs": lambda: (m.hdemucs_low(["voice", "rest"]), (r(1, 2, 44100),)),
        "hubert": lambda: (m.hubert_base(), sound()),
        "wav2vec2": lambda: (m.wav2vec2_base(), sound()),
        "wavlm": lambda: (m.wavlm_base(), sound()),
        "rnnt": lambda: (m.emformer_rnnt_base(64), (r(1, 20, 80), lengths(20), words(1, 5), lengths(5))),
        "squim_objective": lambda: (m.squim_objective_base(), (r(1, 16000),)),
        "squim_subjective": lambda: (m.squim_subjective_base(), (r(1, 16000), r(1, 16000))),
        "tacotron2": lambda: (m.Tacotron2(), (words(2, 12), lengths(12, 10), r(2, 80, 15), lengths(15, 12))),
        "wav2letter": lambda: (m.Wav2Letter(), (r(2, 1, 16000),)),
        "wavernn": lambda: (m.WaveRNN([5, 5, 8], 512, 200), (r(2, 1, 1600), r(2, 1, 128, 12))),
    }
    for name, build in made.items():
        yield Architecture(name, [build])


LIBRARIES: dict[str, Callable[[], Iterator[Architecture]]] = {
    "transformers": transformers_models,
    "timm": timm_models,
    "torchvision": torchvision_models,
    "diffusers": diffusers_models,
    "torchaudio": torchaudio_models,
}
