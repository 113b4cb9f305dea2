"""The device catalogue: its rows, and which device a name means."""

from __future__ import annotations

import importlib.resources
import math
from typing import Any

import pytest

from tensortide.errors import TensortideError
from tensortide.timing import Device, catalogue, device
from tensortide.timing.catalogue import LEAST_REPORTED, meant
from tensortide.timing.rates import matrix_tflops, vector_tflops


@pytest.mark.parametrize(
    ("name", "row"),
    [
        ("NVIDIA H100 80GB HBM3", "H100-SXM-80GB"),
        ("NVIDIA H100 PCIe", "H100-PCIe-80GB"),
        ("NVIDIA A100-SXM4-80GB", "A100-SXM-80GB"),
        ("NVIDIA A100-SXM4-40GB", "A100-SXM-40GB"),
        ("NVIDIA A100 80GB PCIe", "A100-PCIe-80GB"),
        ("a100_pcie_40gb", "A100-PCIe-40GB"),
        ("Tesla V100-PCIE-32GB", "V100-PCIe-32GB"),
        ("Tesla V100-SXM2-16GB", "V100-SXM-16GB"),
        ("NVIDIA GeForce RTX 4090", "RTX 4090"),
        ("NVIDIA(R) L40S", "L40S"),
        ("AMD Instinct MI300X", "MI300X"),
        ("GeForce GTX 1080", "GTX 1080"),
        ("NVIDIA TITAN X (Pascal)", "TITAN X (Pascal)"),
        ("GeForce GTX TITAN X", "GTX TITAN X (Maxwell)"),
        ("tpu v4", "TPU v4 (per chip)"),
    ],
)
def test_the_names_that_drivers_report_are_known(name: str, row: str) -> None:
    assert device(name).name == row


@pytest.mark.parametrize("known", catalogue(), ids=lambda d: d.name)
def test_every_row_is_found_by_each_of_its_names(known: Device) -> None:
    for name in (known.name, *known.aliases):
        assert device(name) is known
        assert device(f"  {name.upper()} ") is known


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("H100", ("H100-SXM-80GB", "H100-PCIe-80GB")),
        ("NVIDIA A100", ("A100-SXM-80GB", "A100-PCIe-40GB")),
        ("P100", ("P100-PCIe-16GB", "P100-SXM2-16GB")),
        ("A100-80GB", ("A100-SXM-80GB", "A100-PCIe-80GB")),
        ("V100-SXM2", ("V100-SXM-32GB", "V100-SXM-16GB")),
        ("NVIDIA L40", ("L40S",)),
        ("RTX 4091", ("RTX 4090",)),
        ("P100-PCIe", ("P100-PCIe-16GB",)),
    ],
)
def test_a_name_that_leaves_open_what_counts_is_an_error_with_near_names(name: str, near: tuple[str, ...]) -> None:
    with pytest.raises(TensortideError, match=r"no device is called|is ambiguous: it may be") as caught:
        device(name)
    for known in near:
        assert known in str(caught.value)


@pytest.mark.parametrize(
    ("name", "row", "others"),
    [
        ("h100", "H100-SXM-80GB", ("H100-PCIe-80GB", "H100-96GB")),
        ("A100", "A100-SXM-80GB", ("A100-SXM-40GB", "A100-PCIe-80GB", "A100-PCIe-40GB")),
        ("h100-sxm", "H100-SXM-80GB", ()),
        ("NVIDIA H100 PCIe", "H100-PCIe-80GB", ()),
        ("L4", "L4", ()),
    ],
)
def test_what_a_person_means_says_what_else_it_might_be(name: str, row: str, others: tuple[str, ...]) -> None:
    found, also = meant(name)
    assert (found.name, also) == (row, others)


@pytest.mark.parametrize("name", ["V100", "a100-sxm", "P100", "RTX 4091", ""])
def test_what_could_be_several_devices_or_none_is_not_guessed(name: str) -> None:
    with pytest.raises(TensortideError, match=r"no device is called|is ambiguous: it may be"):
        meant(name)


@pytest.mark.parametrize("name", ["", "NVIDIA", "-", "qqqqqqqq"])
def test_a_name_like_no_other_is_an_error_too(name: str) -> None:
    with pytest.raises(TensortideError, match="no device is called"):
        device(name)


def test_two_devices_of_one_name_are_an_error_that_names_both() -> None:
    twins = [
        Device(name="X1 8GB", aliases=("NVIDIA X1",), memory_gbytes_per_s=1.0),
        Device(name="X1 4GB", aliases=("x-1",), memory_gbytes_per_s=2.0),
    ]
    with pytest.raises(TensortideError, match="2 devices are called 'X1': X1 8GB, X1 4GB"):
        device("X1", twins)
    assert device("x1 4gb", twins).memory_gbytes_per_s == 2.0


def test_figures_are_those_of_the_datasheets() -> None:
    a100 = device("A100-SXM-80GB")
    assert (a100.bf16_tflops, a100.tf32_tflops, a100.fp32_tflops) == (312, 156, 19.5)
    assert (a100.memory_gbytes, a100.memory_gbytes_per_s, a100.compute_units) == (80, 2039, 108)
    assert device("L4").memory_gbytes_per_s == 300
    assert device("H100-SXM-80GB").fp8_tflops == 1979  # dense
    assert device("T4").bf16_tflops is None


FP64_UNITS_PER_FP32 = {
    **dict.fromkeys(("Maxwell sm52", "Pascal sm61", "Turing sm75"), 1 / 32),
    **dict.fromkeys(("Ampere sm86", "Ada sm89", "Blackwell sm103", "Blackwell sm120"), 1 / 64),
    **dict.fromkeys(("Pascal sm60", "Volta sm70", "Blackwell sm100"), 1 / 2),
    **dict.fromkeys(("Ampere sm80", "Hopper sm90"), 1),  # matrix units
}
"""As the programming guide and the whitepapers of NVIDIA have them, by compute capability."""


def test_fp64_has_the_share_of_fp32_that_the_architecture_gives_it() -> None:
    for known in catalogue():
        if known.arch in FP64_UNITS_PER_FP32 and known.fp32_tflops is not None:
            assert known.fp64_tflops is not None
            ratio = known.fp64_tflops / known.fp32_tflops
            assert ratio == pytest.approx(FP64_UNITS_PER_FP32[known.arch], rel=0.15), known.name


def test_a_board_of_two_devices_is_halved() -> None:
    k80 = device("Tesla K80")
    assert (k80.fp32_tflops, k80.memory_gbytes, k80.memory_gbytes_per_s) == (4.37, 12, 240)
    assert (k80.compute_units, k80.pcie_gbytes_per_s) == (13, 15.8)
    mi250x = device("AMD Instinct MI250X")
    assert (mi250x.bf16_tflops, mi250x.memory_gbytes, mi250x.compute_units) == (191.5, 64, 110)


def test_matrix_units_that_compute_in_fp32_have_a_rate_of_their_own() -> None:
    mi210 = device("MI210")
    assert (mi210.fp32_tflops, matrix_tflops(mi210, "float32"), vector_tflops(mi210, "float32")) == (22.6, 45.3, 22.6)
    assert matrix_tflops(mi210, "tf32") == 45.3  # it has no such mode
    for name in ("MI250X", "MI250"):
        half = device(name)
        assert half.fp32_tflops is not None
        assert matrix_tflops(half, "float32") == pytest.approx(45.3 / 22.6 * half.fp32_tflops)
    assert matrix_tflops(device("A100-SXM-80GB"), "float32") == 19.5


def test_the_catalogue_is_whole_and_plausible() -> None:
    assert len({d.name for d in catalogue()}) == len(catalogue())
    for known in catalogue():
        assert known.memory_gbytes_per_s > 0
        assert known.compute_source
        for rate in (
            "fp64_tflops",
            "fp32_tflops",
            "fp32_matrix_tflops",
            "tf32_tflops",
            "fp16_tflops",
            "bf16_tflops",
            "fp8_tflops",
        ):
            value = getattr(known, rate)
            assert value is None or 0 < value < 20000
        if known.kind == "gpu" and known.fp32_tflops is not None:
            assert known.fp64_tflops is not None
    assert {d.kind for d in catalogue()} == {"gpu", "accelerator", "cpu"}


def test_every_source_that_a_row_names_is_explained() -> None:
    sources = importlib.resources.files("tensortide.timing").joinpath("devices_sources.txt").read_text("utf-8")
    known_by = ["MLE", "NET", "AIC", "LLA", "NS", "HAB", "PAL", "T213", "GCP", "WEB", "DER", "DOC", "LOCAL"]
    codes = {*known_by, "ARCH", "LLM-Viewer", "TT", "JUP", "AZU", "DGX1", "P2P"}
    for code in codes:
        assert f"\n{code}" in sources
    for known in catalogue():
        assert any(code in known.compute_source for code in codes)
        assert any(code in known.memory_source for code in codes)
        assert bool(known.wiring) == any(code in known.wiring_source for code in codes)


@pytest.mark.parametrize("figure", ["memory_gbytes_per_s", "bf16_tflops", "compute_units", "l2_mbytes", "tdp_watts"])
@pytest.mark.parametrize("value", [-1.0, 0.0, math.nan, math.inf])
def test_a_device_of_ones_own_has_positive_figures(figure: str, value: float) -> None:
    figures: dict[str, Any] = {"memory_gbytes_per_s": 1000.0, "fp32_tflops": 20.0, figure: value}
    with pytest.raises(TensortideError, match=f"mine: {figure} is"):
        Device(name="mine", **figures)


def _of_gib(amount: float | None, sold: float | None) -> float:
    """Bytes for each GB that a device is sold with, in GiB."""
    assert amount is not None
    assert sold is not None
    return amount / sold / 2**30


def test_what_a_program_can_use_of_a_card_is_less_than_it_is_sold_with() -> None:
    for name, least, most in (("H100-SXM-80GB", 78.0, 79.0), ("A100-SXM-40GB", 38.5, 39.5), ("T4", 14.0, 14.3)):
        assert least < _of_gib(device(name).usable_bytes, 1.0) < most
    for known in catalogue():
        if known.driver_gibytes is not None:
            assert known.driver_source in ("OOM", "SMI")
            assert LEAST_REPORTED <= _of_gib(known.driver_gibytes * 2**30, known.memory_gbytes) < 1
        if known.kind == "gpu":
            assert 0.8 < _of_gib(known.usable_bytes, known.memory_gbytes) < 1
    assert device("Intel i9-13900K").usable_bytes is None


ADDED = ("RTX 3060", "RTX 4060", "TITAN RTX", "H100-96GB")


@pytest.mark.parametrize("name", ADDED)
def test_a_card_has_every_fact_that_its_architecture_can_have(name: str) -> None:
    card = device(name)
    unknown = {field for field in Device.__struct_fields__ if getattr(card, field) in (None, "", ())}
    turing = {"tf32_tflops", "bf16_tflops"} if "Turing" in card.arch else set[str]()
    fp8 = set[str]() if card.arch.split()[0] in ("Ada", "Hopper") else {"fp8_tflops"}
    known_not = {"fp32_matrix_tflops", "fp4_tflops", "aliases", "peer_access", "notes"}
    of_nobody = {"driver_gibytes", "driver_source", "internode_gbytes_per_s", "wired_devices"}
    limited = {"boost_mhz", "year"} if name == "H100-96GB" else set[str]()  # its source has neither
    assert unknown <= known_not | turing | fp8 | of_nobody | limited


def test_facts_of_the_added_cards() -> None:
    facts = {(c.name, c.memory_gbytes, c.memory_gbytes_per_s, c.compute_units, c.tdp_watts) for c in map(device, ADDED)}
    assert facts == {
        ("RTX 3060", 12, 360, 28, 170),
        ("RTX 4060", 8, 272, 24, 115),
        ("TITAN RTX", 24, 672, 72, 280),
        ("H100-96GB", 96, 2400, 132, 500),
    }
    for name, row in (("NVIDIA GeForce RTX 3060", "RTX 3060"), ("NVIDIA TITAN RTX", "TITAN RTX")):
        assert device(name).name == row
    assert meant("h100-sxm") == (device("H100-SXM-80GB"), ())


def test_nics_of_reference_systems() -> None:
    nics = {name: device(name).internode_gbytes_per_s for name in ("GH200-96GB", "MI300X", "B300-SXM-288GB")}
    assert nics == {"GH200-96GB": 25, "MI300X": 50, "B300-SXM-288GB": 100}


@pytest.mark.parametrize(
    ("wiring", "message"),
    [
        ({"wiring": "star"}, "wiring is 'star'; it is switched, mesh"),
        ({"wiring": "mesh"}, "wiring mesh needs wired_devices"),
    ],
)
def test_a_wiring_is_one_of_the_table(wiring: dict[str, Any], message: str) -> None:
    with pytest.raises(TensortideError, match=f"mine: {message}"):
        Device(name="mine", memory_gbytes_per_s=1.0, **wiring)
