"""Devices of the user's own: a JSON file of figures, and what is refused with one clear message."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from tensortide.errors import TensortideError
from tensortide.timing import Device, device
from tensortide.timing.figures import at_least
from tensortide.timing.own import own_device
from tensortide.timing.predict import predict
from tensortide.timing.work import product

PLAIN = {"name": "X", "memory_gbytes_per_s": 1000, "fp32_tflops": 20}


def written(folder: Path, **figures: object) -> Path:
    path = folder / "own.json"
    path.write_text(json.dumps(figures))
    return path


def test_figures_are_those_of_the_file(tmp_path: Path) -> None:
    found = own_device(written(tmp_path, **PLAIN, compute_units=40, kind="gpu"))
    assert found == Device(name="X", memory_gbytes_per_s=1000.0, fp32_tflops=20.0, compute_units=40)


def test_what_is_not_given_is_that_of_a_device_of_the_catalogue(tmp_path: Path) -> None:
    found = own_device(written(tmp_path, name="mine", like="h100 pcie 80gb", memory_gbytes_per_s=3938))
    like = device("H100-PCIe-80GB")
    assert (found.fp32_tflops, found.memory_gbytes_per_s, found.arch) == (like.fp32_tflops, 3938, like.arch)
    assert (found.name, found.compute_source, found.aliases) == ("mine", "", ())
    assert at_least(found, like)
    works = [product(4096, 4096, 4096, dtype="bfloat16"), product(1, 4096, 4096, dtype="bfloat16")]
    assert all(a.ns <= b.ns for a, b in zip(predict(works, found), predict(works, like), strict=True))


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"memory_gbytes_per_s": "fast"}, r"own.json: Expected `float`, got `str` - at `\$.memory_gbytes_per_s`"),
        ({"memory_gbytes_per_s": 0}, "own.json: X: memory_gbytes_per_s is 0"),
        ({"fp32_tflops": None}, "own.json: no rate is given: it takes one at least of fp64_tflops"),
        ({"fp32_tflop": 20}, "own.json: a device has no 'fp32_tflop'; it may be fp32_tflops"),
        ({"compute_source": "MLE"}, "own.json: leave out compute_source"),
        ({"kind": "quantum"}, "own.json: Invalid enum value 'quantum'"),
        ({"like": "v100"}, "own.json: like: 'v100' is ambiguous"),
        ({"arch": "Hoper sm90"}, "own.json: arch 'Hoper sm90' is not in the catalogue; it may be Hopper sm90"),
    ],
)
def test_what_is_no_device_is_one_clear_error(changed: dict[str, object], message: str, tmp_path: Path) -> None:
    with pytest.raises(TensortideError, match=message):
        own_device(written(tmp_path, **PLAIN | changed))


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"{", "is no JSON"), (b"\xff", "is no JSON"), (b"[1]", "is no device"), (None, "cannot be read: No such file")],
)
def test_what_is_no_file_of_a_device_is_one_clear_error(content: bytes | None, message: str, tmp_path: Path) -> None:
    path = tmp_path / "own.json"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(TensortideError, match=f"own.json {message}"):
        own_device(path)


def test_what_misses_is_named(tmp_path: Path) -> None:
    for key in ("name", "memory_gbytes_per_s"):
        given = {name: value for name, value in PLAIN.items() if name != key}
        with pytest.raises(TensortideError, match=f"missing required field `{key}`"):
            own_device(written(tmp_path, **given))


@pytest.mark.parametrize(
    "changed",
    [
        {"kind": "quantum"},
        {"fp32_tflops": "10"},
        {"memory_gbytes_per_s": None},
        {"fp32_tflops": 1e-300},
        {"memory_gbytes_per_s": 1e300},
        {"tdp_watts": True},
        {"compute_units": [1]},
    ],
)
def test_figures_in_python_are_checked_alike(changed: dict[str, object]) -> None:
    (field,) = changed
    with pytest.raises(TensortideError, match=f"X: {field} is "):
        Device(**PLAIN | changed)  # type: ignore[arg-type]
    with pytest.raises(TensortideError, match=f"X: {field} is "):
        msgspec.structs.replace(Device(**PLAIN), **changed)  # type: ignore[arg-type]
