"""Stored products of a GPU correct the predictions of others there."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
import torch

import tensortide
from tensortide.graph import Graph
from tensortide.timing import Durations, Measurement, Platform, device, estimate, identity
from tensortide.timing.estimates import Provenance
from tensortide.timing.models.kriging import correction
from tensortide.timing.rates import columns
from tensortide.timing.refined import refine
from tensortide.timing.samples import recall, remember
from tensortide.timing.work import product

CARD = device("RTX 4090")  # which no model has seen
Sides = Sequence[tuple[int, int, int]]
RNG = random.Random(0)
STORED = [(64 * RNG.randint(1, 30), 64 * RNG.randint(1, 30), 64 * RNG.randint(1, 30)) for _ in range(40)]
SLOWER = 1.5


def products(sides: Sides) -> Graph:
    def workload() -> Callable[[], None]:
        pairs = [(torch.empty(m, k), torch.empty(k, n)) for m, n, k in sides]

        def step() -> None:
            for a, b in pairs:
                torch.mm(a, b)

        return step

    return tensortide.capture(workload)


def stored(sides: Sides, store: Path) -> None:
    """Store that ``sides`` take ``SLOWER`` times what is predicted."""
    graph = products(sides)
    ns = tuple(round(SLOWER * time) for time in estimate(graph, CARD).ns)
    machine = Platform(device="cuda", name="NVIDIA GeForce RTX 4090", versions={"torch": "2.13.0"})
    counts = (9,) * len(graph)
    found = Measurement(how="step", clock="kernel", min_ns=ns, p90_ns=ns, samples=counts, machine=machine)
    remember(graph, Durations(ns, "test", "measured", 0, identity(graph), found), CARD.name, store=store)


def test_other_products_are_corrected_between_the_sizes_of_the_stored_ones(tmp_path: Path) -> None:
    stored(STORED, tmp_path)
    between, beyond = (500, 700, 900), (20_000, 700, 900)
    graph = products([between, beyond, STORED[0]])
    plain = estimate(graph, CARD)
    known = recall(graph, plain, CARD.name, "torch 2.13", store=tmp_path)
    found = refine(graph, known, CARD, store=tmp_path)
    assert [a / b for a, b in zip(found.ns, plain.ns, strict=True)] == pytest.approx([SLOWER] * 3, rel=0.01)
    assert found.forecast is not None
    assert plain.forecast is not None
    rows = [found.forecast.rows[place] for place in found.forecast.index]
    kinds = [Provenance.INTERPOLATED, Provenance.EXTRAPOLATED, Provenance.MEASURED]
    assert [row.provenance for row in rows] == kinds
    assert rows[0].above < plain.forecast.rows[0].above
    assert "2 products corrected by stored ones" in found.source
    found.check(graph)


def test_few_stored_products_or_those_of_another_device_correct_nothing(tmp_path: Path) -> None:
    graph = products([(500, 700, 900)])
    stored(STORED[:20], tmp_path)
    assert refine(graph, estimate(graph, CARD), CARD, store=tmp_path) == estimate(graph, CARD)
    stored(STORED, tmp_path)
    other = device("L4")
    assert refine(graph, estimate(graph, other), other, store=tmp_path) == estimate(graph, other)


def test_what_is_left_of_a_point_is_what_the_others_miss_it_by() -> None:
    table = columns([product(*sides) for sides in STORED], CARD)
    residuals = np.sin(np.arange(len(STORED))) / 10
    found = correction(table, residuals)
    kept = np.arange(len(STORED)) != 7
    others = correction(table.where(kept), residuals[kept])
    left = residuals[7] - np.log(others.factor(table.where(~kept))[0])
    assert found.missed[7] == pytest.approx(left, abs=0.01)  # the median is of all
