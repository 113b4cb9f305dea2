"""Sizes are the published ones: parameters of the papers' models, products by independent counts."""

from __future__ import annotations

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from tensortide.examples import find
from tests.examples.probe import parameter_count
from tests.examples.tiny import Settings
from tests.marks import some_slow

PUBLISHED: list[tuple[str, Settings, int]] = [
    ("alexnet", {}, 61_100_840),
    ("vgg", {}, 138_357_544),
    ("vgg", {"depth": 11}, 132_863_336),
    ("vgg", {"depth": 19, "norm": True}, 143_678_248),
    ("resnet", {}, 25_557_032),
    ("resnet18", {}, 11_689_512),
    ("resnet34", {}, 21_797_672),
    ("resnet50", {}, 25_557_032),
    ("resnet101", {}, 44_549_160),
    ("resnet152", {}, 60_192_808),
    ("resnet18_cifar", {}, 11_220_132),
    ("resnet32_cifar", {}, 464_154),
    ("resnet20", {}, 269_722),
    ("resnet110", {}, 1_727_962),
    ("resnet1202", {}, 19_421_274),
    ("densenet", {}, 7_978_856),
    ("densenet100", {}, 769_162),
    ("tv_densenet161", {}, 28_681_000),
    ("tv_densenet169", {}, 14_149_480),
    ("tv_densenet201", {}, 20_013_928),
    ("inception_v3", {}, 23_834_568),
    ("inceptionv3", {}, 27_161_264),
    ("inceptionv4", {}, 42_679_816),
    ("mobilenet_v2", {}, 3_504_872),
    ("unet", {}, 31_037_698),
    ("diffusion", {}, 35_746_307),
    ("vit", {}, 86_567_656),
    ("vit", {"patch": 32}, 88_224_232),
    ("vit", {"hidden": 1024, "layers": 24, "heads": 16, "intermediate": 4096}, 304_326_632),
    ("bert", {}, 109_482_240),
    ("bert", {"hidden": 1024, "layers": 24, "heads": 16, "intermediate": 4096}, 335_141_888),
    ("gpt2", {}, 124_439_808),
    ("gpt2", {"hidden": 1600, "layers": 48, "heads": 25}, 1_557_611_200),
    ("llama", {}, 54_927_872),
    ("llama", {"hidden": 4096, "layers": 32, "heads": 32, "kv_heads": 32, "intermediate": 11008}, 6_738_415_616),
    (
        "llama",
        {"hidden": 8192, "layers": 80, "heads": 64, "kv_heads": 8, "intermediate": 28672, "vocab": 128256},
        70_553_706_496,
    ),
    (
        "mixtral",
        {"hidden": 4096, "layers": 32, "heads": 32, "kv_heads": 8, "intermediate": 14336},
        46_702_792_704,
    ),
    ("lstm", {}, 3_683_338),
    ("lstm_encoder", {}, 13_987_678),
    ("transformer_encoder", {}, 13_828_478),
    ("hf_gpt2", {}, 124_439_808),
    ("hf_llama", {}, 54_927_872),
    ("hf_bert", {}, 109_482_240),
    ("hf_vit", {}, 86_567_656),
    ("hf_t5", {}, 60_506_624),
    (
        "hf_llama",
        {"hidden": 8192, "layers": 80, "heads": 64, "kv_heads": 8, "intermediate": 28672, "vocab": 128256},
        70_553_706_496,
    ),
    (
        "hf_mixtral",
        {"hidden": 4096, "layers": 32, "heads": 32, "kv_heads": 8, "intermediate": 14336},
        46_702_792_704,
    ),
]

SLOW = {"inceptionv4", "resnet1202", "tv_densenet169", "tv_densenet201"}

LOOPED: list[tuple[str, Settings, int]] = [
    ("word_lm", {}, 104_378_324),
    ("word_lm", {"tied": True}, 104_378_324 - 2004 * 10004),
    ("char_lm", {}, 88_785_314),
    ("nmt", {}, 146_890_752),
    ("speech", {}, 71_084_647),
    (
        "speech",
        {"hidden": 1051, "query": 509, "decoder": 571, "keys": 137, "kernel": 53},
        75_316_663,
    ),
    ("word2vec", {}, 2 * 400 * 40004 + 40004),
]

PRODUCTS: list[tuple[str, Settings, int, int]] = [
    ("resnet18_cifar", {}, 555_468_800, 3_329_273_856),
    ("resnet18", {}, 1_814_073_344, 10_648_412_160),
    ("vit", {}, 17_563_828_224, 105_151_758_336),
    ("gpt2", {}, 145_824_153_600, 874_944_921_600),
    ("llama", {}, 21_877_489_664, 131_264_937_984),
    ("llama", {"layers": 2}, 21_877_489_664 - 6 * 1_686_110_208, 131_264_937_984 - 36 * 1_686_110_208),
    ("lstm", {}, 367_006_720, 2_092_988_416),
]
"""Per sample: multiply-accumulates forward, and FLOPs forward and backward, of all products and convolutions."""


def parameters_of(name: str, settings: Settings) -> int:
    if not find(name).available:
        pytest.skip(f"needs {', '.join(find(name).missing)}")
    with torch.device("meta"):
        return parameter_count(find(name).load()(**settings))


@pytest.mark.parametrize(
    ("name", "settings", "count"),
    some_slow(
        PUBLISHED + LOOPED,
        [
            (name, settings, count)
            for name, settings, count in PUBLISHED
            if name in SLOW
            or settings.get("depth") in (161, 169, 201)
            or settings.get("layers") in (24, 32, 48, 80)
            or name.startswith("hf_")
            or ("llama" in name and count > 10**10)
        ],
    ),
)
def test_parameters_are_the_published_number(name: str, settings: Settings, count: int) -> None:
    assert parameters_of(name, settings) == count


def test_constants_are_those_of_the_logs_that_were_published_with_dynamic_tensor_rematerialization() -> None:
    """Its logs of 512 steps of an LSTM and of a transformer say how many bytes nothing can recompute: parameters and
    inputs, of the LSTM also its two first states; of the transformer up to some scalars.
    """
    lstm = parameters_of("dtr_lstm", {}) + 512 * 128 * 512 + 2 * 1700
    assert 4 * lstm == 194_424_928
    transformer = 4 * (parameters_of("dtr_transformer", {}) + (512 + 20) * 10 * 512) + 8 * 20 * 512
    assert 0 <= 263_197_248 - transformer < 1024


@pytest.mark.parametrize(
    ("depth", "squares", "head", "widths"),
    [
        (18, 2724, 8, 150),
        (34, 5190, 8, 266),
        (50, 5724, 32, 830),
        (101, 10348, 32, 1646),
        (152, 14156, 32, 2366),
    ],
)
def test_resnet_parameters_follow_their_polynomial(depth: int, squares: int, head: int, widths: int) -> None:
    c, i, n = 6, 5, 7
    count = parameters_of("resnet", {"depth": depth, "width": c, "channels": i, "classes": n})
    assert count == squares * c * c + 49 * c * i + head * c * n + widths * c + n


@pytest.mark.parametrize(
    ("name", "settings", "macs", "flops"),
    some_slow(PRODUCTS, [case for case in PRODUCTS if case[0] != "resnet18_cifar" and "layers" not in case[1]]),
)
def test_products_forward_and_backward(name: str, settings: Settings, macs: int, flops: int) -> None:
    """Counted by PyTorch's own counter, which needs the attention and the recurrent layers in parts."""
    fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    counts = []
    for train in (False, True):
        with torch.device("meta"), sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
            find(name).load()(batch=1, train=train, **settings)()
        counts.append(counter.get_total_flops())
    torch.backends.mha.set_fastpath_enabled(fast)
    assert counts == [2 * macs, flops]
