"""Cards of which only the size is known."""

from __future__ import annotations

import pytest

from tensortide.errors import RequestError
from tensortide.targets.machines import device_named, full_name, in_catalogue, kernels_of, machines_of
from tensortide.timing.cards import card, of_bytes
from tensortide.timing.catalogue import DEFAULT_DEVICE, catalogue, device, meant

SIZES = sorted({row.memory_gbytes for row in catalogue() if row.kind == "gpu" and row.memory_gbytes})


@pytest.mark.parametrize("text", ["24GB", "24GiB", "24gb", "24 GB", " 24 gib ", "24.0GB"])
def test_a_size_is_a_card_however_it_is_written(text: str) -> None:
    found = card(text)
    assert found is not None
    assert found.name == full_name(text) == "24GB"
    assert kernels_of(text) == DEFAULT_DEVICE
    assert not in_catalogue(text)


@pytest.mark.parametrize("size", SIZES)
def test_every_card_of_a_size_leaves_what_is_said_and_the_example_is_one_of_them(size: float) -> None:
    found = card(f"{size:g}GB")
    assert found is not None
    rows = [row for row in catalogue() if row.kind == "gpu" and row.memory_gbytes == size]
    usable = [row.usable_bytes or 0 for row in rows]
    assert found.least_bytes == min(usable)
    assert max(usable) <= found.most_bytes < size * 2**30
    assert meant(found.example)[0].memory_gbytes == size


def test_a_size_without_a_card_in_the_catalogue_is_between_what_drivers_report_least_and_all_of_it() -> None:
    found = card("20GB")
    assert found is not None
    assert 0.85 * 20 * 2**30 < found.least_bytes < found.most_bytes < 20 * 2**30


@pytest.mark.parametrize("name", ["h100", "24", "24G", "24MB", "GTX 1060 6GB", "local", "card.json", "", "x24GB"])
def test_other_names_are_no_sizes(name: str) -> None:
    assert card(name) is None


@pytest.mark.parametrize("name", ["0GB", "0.3GB", "5000GB"])
def test_a_size_that_no_card_has_is_an_error(name: str) -> None:
    with pytest.raises(RequestError, match="the size of a card is from 1GB to 4096GB"):
        card(name)


@pytest.mark.parametrize("name", ["24GB", "8x24GB"])
def test_what_needs_times_refuses_a_size_and_names_a_card_of_it(name: str) -> None:
    with pytest.raises(RequestError, match="24GB is a size, not a card; rtx4090 is one"):
        machines_of(name)
    with pytest.raises(RequestError, match="is a size"):
        device_named("24GB")


def test_bytes_are_a_card_that_has_just_those() -> None:
    found, of_a_size = of_bytes(10**9), of_bytes(10**9, card("24GB"))
    assert (found.least_bytes, found.most_bytes, found.of_size) == (10**9, 10**9, False)
    assert (of_a_size.least_bytes, of_a_size.most_bytes, of_a_size.name) == (10**9, 10**9, "24GB")
    assert device("L4").memory_gbytes == 24
