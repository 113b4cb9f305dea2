"""Random inputs are like those of a batch: containers, shapes, dtypes, ranges; global random state stays."""

from __future__ import annotations

import random as python_random
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tensortide.errors import MetricError
from tensortide.measures.backend import Arguments
from tensortide.profile.evaluation.nested import placed, tensor_of
from tensortide.profile.evaluation.sampling import TensorSample, random, sample, shapes

FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
WHOLE = (torch.uint8, torch.int8, torch.uint16, torch.int16, torch.uint32, torch.int32, torch.int64)


def made(value: Any, batch_size: int = 200, **options: Any) -> Any:
    """Random inputs like the single argument ``value``."""
    (found,), _ = random(sample(((value,), {}), **options), batch_size, seed=3)
    return found


@pytest.mark.parametrize("dtype", WHOLE)
def test_integers_cover_the_observed_range(dtype: torch.dtype) -> None:
    found = made(torch.tensor([[5, 7], [9, 6]], dtype=dtype))
    assert (found.dtype, tuple(found.shape)) == (dtype, (200, 2))
    assert sorted(set(found.long().flatten().tolist())) == [5, 6, 7, 8, 9]


@given(st.integers(-(2**63), 2**63 - 1), st.integers(-(2**63), 2**63 - 1))
def test_integers_stay_in_any_range(a: int, b: int) -> None:
    found = made(torch.tensor([a, b]), 50)
    assert min(a, b) <= int(found.min()) <= int(found.max()) <= max(a, b)


def test_a_declared_range_takes_the_place_of_the_observed_one() -> None:
    described = sample(
        ((torch.zeros(2, 3, dtype=torch.long),), {"x": torch.ones(2)}), ranges={0: (10, 12), "x": (-2, -1)}
    )
    (ids,), named = random(described, 100)
    assert set(ids.flatten().tolist()) == {10, 11, 12}
    assert -2 <= float(named["x"].min()) < -1.9
    assert -1.1 < float(named["x"].max()) <= -1
    with pytest.raises(MetricError, match="is of uint8, which does not hold all of 0 to 300"):
        sample(((torch.zeros(2, dtype=torch.uint8),), {}), ranges={0: (0, 300)})
    for ranges, text in (({1: (0, 1)}, r"no argument 1 .* there are \[0, 'x'\]"), ({0: (2, 1)}, "2 is above 1")):
        with pytest.raises(MetricError, match=text):
            sample(((torch.zeros(2),), {"x": torch.ones(2)}), ranges=ranges)  # type: ignore[arg-type]


@pytest.mark.parametrize("dtype", FLOATS)
def test_floats_are_uniform_or_normal(dtype: torch.dtype) -> None:
    uniform, normal = (made(torch.zeros(2, 50, dtype=dtype), distribution=how) for how in ("uniform", "normal"))
    assert uniform.dtype == normal.dtype == dtype
    assert 0 <= float(uniform.min()) < 0.01 < 0.99 < float(uniform.max()) <= 1
    assert abs(float(uniform.double().mean()) - 0.5) < 0.02
    assert abs(float(normal.double().mean())) < 0.05
    assert abs(float(normal.double().std()) - 1) < 0.05


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
def test_complex_numbers_have_both_parts(dtype: torch.dtype) -> None:
    found = made(torch.zeros(2, 3, dtype=dtype))
    assert found.dtype == dtype
    assert (found.real > 0).all()
    assert (found.imag > 0).all()
    assert not torch.equal(found.real, found.imag)


def test_booleans_are_fair() -> None:
    found = made(torch.ones(2, 100, dtype=torch.bool))
    assert found.dtype == torch.bool
    assert abs(float(found.double().mean()) - 0.5) < 0.02


class Pair(NamedTuple):
    left: Any
    right: Any


def test_containers_of_any_nesting_are_kept() -> None:
    image, ids = torch.zeros(4, 3, 8, 8), np.array([[1, 2]] * 4, dtype=np.int32)
    given = Arguments(([Pair(image, {"deep": (ids,)})],), {"mask": torch.zeros(4, dtype=torch.bool)})
    described = sample(given)
    ((pair,),), named = random(described, 7)
    assert isinstance(pair, Pair)
    assert tuple(pair.left.shape) == (7, 3, 8, 8)
    assert (pair.right["deep"][0].dtype, tuple(pair.right["deep"][0].shape)) == (torch.int32, (7, 2))
    assert tuple(named["mask"].shape) == (7,)
    assert shapes(described) == ((3, 8, 8), (2,), ())


def test_arrays_of_any_layout_are_tensors_of_numbers() -> None:
    frozen = np.arange(6, dtype=np.int64).reshape(2, 3)
    frozen.setflags(write=False)
    for array in (frozen, frozen[:, ::-1], frozen.T, frozen.astype(">i4"), frozen.astype(np.uint16)):
        assert tensor_of(array).tolist() == array.tolist()  # type: ignore[union-attr]
        assert placed([array], None)[0].tolist() == array.tolist()
        assert 0 <= int(made(array).long().min()) <= int(made(array).long().max()) == 5
    texts = np.array(["a"])
    assert tensor_of(texts) is None
    assert placed({"names": texts}, torch.device("cpu"))["names"] is texts


def test_only_the_batch_axis_changes_with_the_batch_size() -> None:
    images, positions, scale = torch.zeros(4, 3), torch.arange(9).reshape(1, 9), torch.tensor(2.0)
    described = sample(((images, torch.zeros(4, 5), positions, scale), {}))
    found, _ = random(described, 6)
    assert [tuple(tensor.shape) for tensor in found] == [(6, 3), (6, 5), (1, 9), ()]


@pytest.mark.parametrize(
    ("leaf", "kind"),
    [
        ("text", "str"),
        (3, "int"),
        (None, "NoneType"),
        (torch.zeros(2, 2).to_sparse(), "Tensor"),
        (np.array(["a"]), "array of <U1"),
    ],
)
def test_another_leaf_is_refused_with_its_place(leaf: Any, kind: str) -> None:
    with pytest.raises(MetricError, match=rf"argument 'x'\[1\]\['name'\] is no dense tensor \(type: {kind}\)"):
        sample(((), {"x": [torch.zeros(2), {"name": leaf}]}))


def test_the_seed_decides_and_global_generators_stay() -> None:
    described = sample(((torch.zeros(2, 5), torch.tensor([[0, 900]] * 2)), {}))
    before = torch.get_rng_state(), python_random.getstate(), np.random.get_state(legacy=False)["state"]["key"].tolist()
    one, same, other = (random(described, 3, seed=seed)[0] for seed in (1, 1, 2))
    assert torch.equal(before[0], torch.get_rng_state())
    assert before[1:] == (python_random.getstate(), np.random.get_state(legacy=False)["state"]["key"].tolist())
    assert all(map(torch.equal, one, same))
    assert not any(map(torch.equal, one, other))


def test_a_batch_of_none_and_integers_without_values_are_refused() -> None:
    with pytest.raises(MetricError, match="at least 1 sample, not 0"):
        random(sample(((torch.zeros(2),), {})), 0)
    with pytest.raises(MetricError, match="declare the range"):
        sample(((torch.zeros(2, dtype=torch.long, device="meta"),), {}))
    (found,), _ = sample(((torch.zeros(2, 0, dtype=torch.long),), {}))
    assert found == TensorSample((0,), torch.int64, True, "uniform", None)
