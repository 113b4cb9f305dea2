"""The tiled bound of products against physics, and trees against the library that grew them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensortide.timing import device
from tensortide.timing.figures import compute_units
from tensortide.timing.models.tiles import MATRIX_FEATURES, matrix_features, tiled
from tensortide.timing.models.trees import Trees
from tensortide.timing.models.vectors import VECTOR_FEATURES, vector_features
from tensortide.timing.rates import columns
from tensortide.timing.work import elementwise, product

A100 = device("A100-SXM-80GB")
sizes = st.integers(1, 5000)


@given(sizes, sizes, sizes, st.integers(1, 64))
def test_no_product_is_faster_than_its_arithmetic_or_its_bytes(m: int, n: int, k: int, batch: int) -> None:
    found = columns([product(m, n, k, batch=batch)], A100)
    least = tiled(found).ns[0]
    assert least >= found.compute_ns[0] * (1 - 1e-12)
    assert least >= found.memory_ns[0] * (1 - 1e-12)


def test_time_rises_when_a_wave_overflows() -> None:
    units = compute_units(A100)
    full, over = (tiled(columns([product(128 * t, 128, 8192)], A100)).ns[0] for t in (int(units), int(units) * 4 + 1))
    assert over > 4 * full


def test_features_are_finite_and_as_many_as_stated() -> None:
    features, bound = matrix_features(columns([product(1, 1, 1), product(4096, 4096, 4096, dtype="bfloat16")], A100))
    assert features.shape == (2, MATRIX_FEATURES)
    assert np.isfinite(features).all()
    assert (bound > 0).all()
    features, bound = vector_features(columns([elementwise(1, 1), elementwise(512, 768, operands=2)], A100))
    assert features.shape == (2, VECTOR_FEATURES)
    assert np.isfinite(features).all()


def test_a_tree_goes_left_up_to_its_threshold() -> None:
    #     x0 <= 1 ? -1 : (x1 <= 5 ? 2 : 3)
    trees = Trees(
        feature=np.array([0, 0, 1, 0, 0], np.int32),
        threshold=np.array([1.0, np.inf, 5.0, np.inf, np.inf]),
        left=np.array([1, 1, 3, 3, 4], np.int32),
        value=np.array([0.0, -1.0, 0.0, 2.0, 3.0]),
        roots=np.array([0], np.int32),
        low=-10.0,
        high=2.5,
    )
    rows = np.array([[1.0, 9.0], [1.1, 5.0], [1.1, 5.1]])
    assert trees.predict(rows).tolist() == [-1.0, 2.0, 2.5]


@pytest.mark.parametrize("bad", [(0, 1, 1), (1, -1, 1)])
def test_sizes_are_positive(bad: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match="sizes are positive"):
        product(*bad)
