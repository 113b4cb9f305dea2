"""Every module of ``torch.nn``: a training step on fake tensors is the one on real tensors, down to storages."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils._pytree import tree_leaves

from tensortide import capture
from tests.marks import some_slow
from tests.recorder.test_fake_mode import difference


def x(*shape: int) -> torch.Tensor:
    return torch.rand(*shape)


def classes(high: int, *shape: int) -> torch.Tensor:
    return torch.randint(0, high, shape)


Case = tuple[tuple[Any, ...], tuple[Any, ...]]
"""Arguments of the constructor and of a call."""
SPATIAL = {1: (2, 4, 9), 2: (2, 4, 9, 10), 3: (2, 4, 5, 6, 7)}
OF_ANY_SIZE: dict[str, tuple[Any, ...]] = {
    "Conv": (4, 6, 3),
    "ConvTranspose": (4, 6, 3),
    "BatchNorm": (4,),
    "InstanceNorm": (4,),
    "MaxPool": (2,),
    "AvgPool": (2,),
    "AdaptiveAvgPool": (3,),
    "AdaptiveMaxPool": (3,),
    "Dropout": (),
    "ConstantPad": (1, 0.5),
    "ReflectionPad": (1,),
    "ReplicationPad": (1,),
    "ZeroPad": (1,),
    "CircularPad": (1,),
    "LPPool": (2, 2),
}
ELEMENTWISE = (
    *("CELU", "ELU", "GELU", "Hardshrink", "Hardsigmoid", "Hardswish", "Hardtanh", "Identity", "LeakyReLU", "Mish"),
    *("LogSigmoid", "PReLU", "RReLU", "ReLU", "ReLU6", "SELU", "SiLU", "Sigmoid", "Softplus", "Softshrink", "Flatten"),
    *("Softsign", "Tanh", "Tanhshrink", "Dropout", "AlphaDropout", "FeatureAlphaDropout", "GLU"),
)
OF_TWO = (
    *("L1Loss", "MSELoss", "SmoothL1Loss", "HuberLoss", "BCELoss", "BCEWithLogitsLoss", "KLDivLoss", "PoissonNLLLoss"),
    *("SoftMarginLoss", "HingeEmbeddingLoss", "MultiLabelSoftMarginLoss", "PairwiseDistance", "CosineSimilarity"),
)
CASES: dict[str, Case] = {
    **{name: ((), (x(4, 6),)) for name in ELEMENTWISE},
    **{name: ((), (x(4, 6), x(4, 6))) for name in OF_TWO},
    **{f"{name}{n}d": (given, (x(*SPATIAL[n]),)) for n in SPATIAL for name, given in OF_ANY_SIZE.items()},
    **{name: ((1,), (x(4, 6),)) for name in ("Softmax", "LogSoftmax", "Softmin")},
    **{name: ((6, 8), (x(4, 6),)) for name in ("Linear", "RNNCell", "LSTMCell", "GRUCell")},
    **{name: ((6, 8, 2), (x(5, 4, 6),)) for name in ("RNN", "LSTM", "GRU")},
    "Bilinear": ((6, 5, 3), (x(4, 6), x(4, 5))),
    "Threshold": ((0.1, 0.0), (x(4, 6),)),
    "Softmax2d": ((), (x(2, 3, 4, 5),)),
    "Embedding": ((10, 6), (classes(10, 4, 5),)),
    "EmbeddingBag": ((10, 6), (classes(10, 4, 5),)),
    "LayerNorm": ((6,), (x(4, 6),)),
    "RMSNorm": ((6,), (x(4, 6),)),
    "GroupNorm": ((2, 4), (x(2, 4, 5, 6),)),
    "LocalResponseNorm": ((2,), (x(2, 4, 5, 6),)),
    "CrossMapLRN2d": ((2,), (x(2, 4, 5, 6),)),
    "CrossEntropyLoss": ((), (x(4, 6), classes(6, 4))),
    "LinearCrossEntropyLoss": ((8, 6), (x(4, 8), classes(6, 4))),
    "NLLLoss": ((), (x(4, 6), classes(6, 4))),
    "NLLLoss2d": ((), (x(2, 4, 5, 6), classes(4, 2, 5, 6))),
    "MultiMarginLoss": ((), (x(4, 6), classes(6, 4))),
    "MultiLabelMarginLoss": ((), (x(4, 6), classes(6, 4, 6))),
    "GaussianNLLLoss": ((), (x(4, 6), x(4, 6), x(4, 6))),
    "MarginRankingLoss": ((), (x(4), x(4), x(4))),
    "CosineEmbeddingLoss": ((), (x(4, 6), x(4, 6), torch.ones(4))),
    "TripletMarginLoss": ((), (x(4, 6), x(4, 6), x(4, 6))),
    "TripletMarginWithDistanceLoss": ((), (x(4, 6), x(4, 6), x(4, 6))),
    "CTCLoss": ((), (x(9, 2, 5), classes(5, 2, 4), torch.full((2,), 9), torch.full((2,), 4))),
    "Fold": (((4, 5), 2), (x(2, 12, 12),)),
    "Unfold": ((2,), (x(2, 3, 4, 5),)),
    "PixelShuffle": ((2,), (x(2, 8, 4, 5),)),
    "PixelUnshuffle": ((2,), (x(2, 3, 4, 6),)),
    "ChannelShuffle": ((2,), (x(2, 4, 4, 6),)),
    "Upsample": ((None, 2), (x(2, 3, 4, 5),)),
    "UpsamplingNearest2d": ((None, 2), (x(2, 3, 4, 5),)),
    "UpsamplingBilinear2d": ((None, 2), (x(2, 3, 4, 5),)),
    "FractionalMaxPool2d": ((2, 3), (x(2, 3, 8, 8),)),
    "FractionalMaxPool3d": ((2, 3), (x(2, 3, 8, 8, 8),)),
    "MaxUnpool1d": ((2,), (x(1, 2, 3), torch.tensor([[[0, 2, 4]] * 2]))),
    "MaxUnpool2d": ((2,), (x(1, 2, 2, 2), torch.tensor([[[[0, 2], [8, 10]]] * 2]))),
    "MaxUnpool3d": ((2,), (x(1, 1, 1, 1, 2), torch.tensor([[[[[0, 2]]]]]))),
    "Unflatten": ((1, (2, 3)), (x(4, 6),)),
    "MultiheadAttention": ((8, 2), (x(5, 3, 8), x(6, 3, 8), x(6, 3, 8))),
    "Transformer": ((8, 2, 1, 1, 16), (x(5, 3, 8), x(6, 3, 8))),
    "TransformerEncoderLayer": ((8, 2, 16), (x(5, 3, 8),)),
    "TransformerDecoderLayer": ((8, 2, 16), (x(5, 3, 8), x(6, 3, 8))),
    "TransformerEncoder": ((nn.TransformerEncoderLayer, (8, 2, 16), 2), (x(5, 3, 8),)),
    "TransformerDecoder": ((nn.TransformerDecoderLayer, (8, 2, 16), 2), (x(5, 3, 8), x(6, 3, 8))),
}
NO_MODULES_OF_THEIR_OWN = frozenset(
    [
        *("Module", "Container", "Sequential", "ModuleList", "ModuleDict", "ParameterList", "ParameterDict"),
        *("DataParallel", "SyncBatchNorm", "RNNBase", "RNNCellBase", "CircularPad", "AdaptiveLogSoftmaxWithLoss"),
    ]
)
"""Containers, bases, modules that need several devices; and one whose values decide shapes (see the corpus)."""
FAST = frozenset(
    [
        *("Linear", "Conv2d", "BatchNorm2d", "LSTM", "TransformerDecoderLayer", "MultiheadAttention", "EmbeddingBag"),
        *("CrossEntropyLoss", "CTCLoss", "MaxPool2d", "Dropout", "GELU", "Upsample", "RMSNorm"),
    ]
)


def test_every_module_has_a_case() -> None:
    modules = {name for name, item in vars(nn).items() if inspect.isclass(item) and issubclass(item, nn.Module)}
    assert {name for name in modules if not name.startswith("Lazy")} - CASES.keys() <= NO_MODULES_OF_THEIR_OWN


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", some_slow(sorted(CASES), sorted(CASES.keys() - FAST)))
def test_fake_equals_real_down_to_storages(name: str) -> None:
    if not hasattr(nn, name):
        pytest.skip(f"this PyTorch has no {name}")
    constructor, inputs = CASES[name]

    def workload() -> Any:
        if constructor and inspect.isclass(constructor[0]):
            layer, given, depth = constructor
            model = getattr(nn, name)(layer(*given), depth)
        else:
            model = getattr(nn, name)(*constructor)
        fed = [torch.rand(t.shape).requires_grad_() if t.is_floating_point() else t.clone() for t in inputs[:1]]
        fed += [t.clone() for t in inputs[1:]]

        def step() -> None:
            out = model(*fed)
            trained = [t for t in tree_leaves(out) if isinstance(t, torch.Tensor) and t.requires_grad]
            torch.stack([t.sum() for t in trained]).sum().backward()

        return step

    fake, real = capture(workload, real=False), capture(workload, real=True)
    if name.startswith("CircularPad"):  # in-place writes to views of what needs a gradient: other ops of no cost
        assert sorted(s.nbytes for s in fake.storages) == sorted(s.nbytes for s in real.storages)
    else:
        assert difference(fake, real) == ""
