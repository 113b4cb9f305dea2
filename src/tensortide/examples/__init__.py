"""The built-in workloads by name; importing this imports no framework.

>>> from tensortide.examples import find
>>> step = find("gpt2").load()(batch=2, seq=128)      # the function, then one training step of it
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import TYPE_CHECKING, Annotated, TypeAlias

from tensortide.errors import MissingExtra, WorkloadError
from tensortide.examples.presets import DTR, SIZES, Setting, preset
from tensortide.python_object import near
from tensortide.shown import Show

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["Example", "Workload", "examples", "find"]

Workload: TypeAlias = "Callable[..., Callable[[], Tensor]]"


@dataclass(frozen=True, slots=True)
class Example:
    """A workload function and the module that it is in; ``requires`` names the packages that it imports.

    A preset is the function called ``of`` with some settings ``fixed``, and other defaults of the rest; it is one of
    the ``group`` ``sizes`` or ``dtr``.
    """

    name: Annotated[str, Show("Name")]
    module: str
    summary: Annotated[str, Show("Summary", fold=True)]
    requires: tuple[str, ...] = ("torch",)
    of: str = ""
    fixed: Mapping[str, Setting] = field(default_factory=dict)
    defaults: Mapping[str, Setting] = field(default_factory=dict)
    where: tuple[str, ...] = ()
    group: str = "examples"

    @property
    def missing(self) -> tuple[str, ...]:
        """The required packages that are not installed; looked up, not imported."""
        return tuple(package for package in self.requires if find_spec(package) is None)

    @property
    def needs(self) -> Annotated[str, Show("Needs", if_any=True)]:
        """The packages beside torch."""
        return ", ".join(package for package in self.requires if package != "torch")

    @property
    def available(self) -> bool:
        return not self.missing

    def load(self) -> Workload:
        """Import the module and return the workload function."""
        if missing := self.missing:
            packages = " and ".join(missing)
            raise MissingExtra(f"example {self.name!r} needs {packages}: pip install tensortide[{','.join(missing)}]")
        workload: Workload = getattr(importlib.import_module(self.module), self.of or self.name)
        if not self.of:
            return workload
        made = preset(workload, self.fixed, self.defaults, self.where)
        made.__name__ = made.__qualname__ = self.name
        made.__doc__ = self.summary
        return made


_FAMILIES = tuple(
    Example(name, f"{__name__}.{module}", summary, ("torch", "transformers") if module == "library" else ("torch",))
    for name, module, summary in (
        ("mlp", "mlp", "Perceptron with ReLU between its layers: the smallest workload."),
        ("alexnet", "convnets", "AlexNet in one column: five convolutions, three linear layers; 61 M parameters."),
        ("vgg", "convnets", "VGG-11, 13, 16 or 19: stacks of 3x3 convolutions; 138 M parameters by default."),
        ("resnet", "resnet", "ResNet of any published depth, for ImageNet or for CIFAR images."),
        ("densenet", "convnets", "DenseNet: every layer of a block reads all layers before it."),
        ("inception_v3", "inception", "Inception v3: factored convolutions in parallel branches."),
        (
            "inception_v4",
            "inception",
            "Inception v4: a branched stem and 14 blocks in parallel branches; 42.7 M parameters.",
        ),
        ("mobilenet_v2", "convnets", "MobileNetV2: inverted residuals with depthwise convolutions."),
        ("unet", "unets", "U-Net for segmentation, with batch norm and transposed convolutions."),
        ("diffusion", "unets", "Denoising diffusion U-Net: predicts the noise in an image; 35.7 M parameters."),
        ("unrolled_gan", "unrolled_gan", "Unrolled GAN: differentiates through updates of the discriminator."),
        ("vit", "encoders", "Vision transformer on image patches; B/16 by default, 86.6 M parameters."),
        ("bert", "encoders", "BERT encoder with pooler; base by default, 109 M parameters."),
        ("encoder_lm", "encoders", "Language model on encoder layers that see no later token."),
        ("gpt2", "decoders", "GPT-2 language model with a tied head; small by default, 124 M parameters."),
        ("llama", "decoders", "Llama language model with grouped-query attention; 55 M parameters by default."),
        ("mixtral", "decoders", "Mixtral-style language model: Llama with a top-2 mixture of 8 experts."),
        ("transformer", "seq2seq", "Encoder-decoder transformer for translation; base by default, 63 M parameters."),
        ("vector_transformer", "seq2seq", "PyTorch's transformer between sequences of vectors; 63.1 M parameters."),
        ("lstm", "recurrent", "Sequence classifier on PyTorch's LSTM layers."),
        ("rnn_lm", "recurrent", "Language model on PyTorch's recurrent layers."),
        ("unrolled_rnn", "recurrent", "Recurrent cells looped over time, read at the end."),
        ("word_lm", "recurrent", "Word language model: LSTM cells looped over time; 104 M parameters."),
        ("char_lm", "recurrent", "Character language model: a recurrent highway network; 89 M parameters."),
        ("nmt", "seq2seq", "Recurrent translation: bidirectional encoder, attention; 147 M parameters."),
        ("speech", "speech", "Speech recognition: pyramid of LSTMs, hybrid attention; 71 M parameters."),
        ("treelstm", "trees", "Binary Tree LSTM over a complete tree, walked by Python recursion."),
        ("sum_treelstm", "trees", "Tree LSTM that sums its children, over a complete tree with an input at each node."),
        ("similarity_treelstm", "trees", "Tree LSTM that compares two sentences by their trees."),
        ("word2vec", "word2vec", "Skip-gram word vectors with sampled negatives; 32 M parameters."),
        ("hf_gpt2", "library", "GPT-2 of transformers; small by default, 124 M parameters."),
        ("hf_llama", "library", "Llama of transformers, grouped-query attention; 55 M parameters by default."),
        ("hf_mixtral", "library", "Mixtral of transformers: top-2 of 8 experts by grouped products."),
        ("hf_t5", "library", "T5 of transformers, an encoder-decoder; small by default, 61 M parameters."),
        ("hf_bert", "library", "BERT of transformers; base by default, 109 M parameters."),
        ("hf_vit", "library", "Vision transformer of transformers; B/16 by default, 86.6 M parameters."),
    )
)

_MODULES = {example.name: example.module for example in _FAMILIES}
_PRESETS = tuple(
    Example(name, _MODULES[of], summary, of=of, fixed=fixed, defaults=defaults, where=where, group=group)
    for group, presets in (("sizes", SIZES), ("dtr", DTR))
    for name, of, summary, fixed, defaults, where in presets
)
_EXAMPLES = (*_FAMILIES, *_PRESETS)


def examples() -> tuple[Example, ...]:
    """All built-in workloads, also those whose packages are not installed (see ``Example.available``)."""
    return _EXAMPLES


def find(name: str) -> Example:
    """The example of that name."""
    by_name = {example.name: example for example in _EXAMPLES}
    if name in by_name:
        return by_name[name]
    hint = near(name.lower(), by_name, listed=False) or "; tensortide capture --list shows all"
    raise WorkloadError(f"no example {name!r}{hint}")
