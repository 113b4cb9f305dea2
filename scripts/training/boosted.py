"""Training of a learned correction by gradient boosting (LightGBM, of the extra ``dev``)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensortide.timing.fit.samples import Samples, domain
from tensortide.timing.models.learned import CORRECTIONS_BY_NAME, Learned
from tensortide.timing.models.trees import Trees

Floats = NDArray[np.float64]

ROUNDS = 300
PARAMETERS: dict[str, Any] = {
    "objective": "l1",
    "num_leaves": 31,
    "learning_rate": 0.06,
    "lambda_l2": 1.0,
    "min_data_in_leaf": 40,
    "feature_fraction": 0.7,
    "bagging_fraction": 0.7,
    "bagging_freq": 1,
    "seed": 1,
    "num_threads": 1,
    "deterministic": True,
    "verbosity": -1,
}
_TIME_WEIGHT = 0.5
_WEIGHTS = (0.05, 20.0)
CLAMP = (0.01, 0.99)
"""Quantiles of the training targets beyond which no correction goes."""


def fit_learned(kind: str, measured: Sequence[Samples], *, weigh_time: bool = False, rounds: int = ROUNDS) -> Learned:
    """Train the correction ``kind`` on ``measured``, each architecture weighing the same.

    ``weigh_time`` gives long ops more weight, by the square root of their time: for tables whose shapes are mostly tiny
    and bound by the launch.
    """
    import lightgbm

    row = CORRECTIONS_BY_NAME[kind]
    measured = [each.of_device() for each in measured]
    parts = [row.features(each.columns) for each in measured]
    targets = [np.log(each.ns / (bound + row.launch_ns)) for each, (_, bound) in zip(measured, parts, strict=True)]
    rows = Counter[str]()
    for each in measured:
        rows[each.device.arch] += len(each)
    most = max(rows.values())
    weights = [_weights(each.ns, weigh_time) * most / rows[each.device.arch] for each in measured]
    target = np.concatenate(targets)
    data = lightgbm.Dataset(np.vstack([features for features, _ in parts]), target, weight=np.concatenate(weights))
    booster = lightgbm.train(PARAMETERS, data, rounds)
    low, high = np.quantile(target, CLAMP).tolist()
    return Learned(kind, domain(measured), _trees(booster.dump_model(), low, high))


def _weights(ns: Floats, weigh_time: bool) -> Floats:
    return np.clip((ns / ns.mean()) ** _TIME_WEIGHT, *_WEIGHTS) if weigh_time else np.ones(len(ns))


def _trees(model: dict[str, Any], low: float, high: float) -> Trees:
    """The trees of LightGBM's ``model`` as arrays in which siblings are neighbours."""
    rows: list[tuple[int, float, int, float]] = []
    roots: list[int] = []
    for tree in model["tree_info"]:
        roots.append(len(rows))
        rows.append((0, np.inf, 0, 0.0))
        level = [(len(rows) - 1, tree["tree_structure"])]
        while level:
            level = [child for index, node in level for child in _place(rows, index, node)]
    feature, threshold, left, value = zip(*rows, strict=True)
    return Trees(
        np.array(feature, dtype=np.int32),
        np.array(threshold, dtype=np.float64),
        np.array(left, dtype=np.int32),
        np.array(value, dtype=np.float64),
        np.array(roots, dtype=np.int32),
        low,
        high,
    )


def _place(rows: list[tuple[int, float, int, float]], index: int, node: dict[str, Any]) -> Iterator[tuple[int, Any]]:
    """Write ``node`` at ``index``, reserve neighbouring places for its children, and yield those."""
    if "leaf_value" in node:
        rows[index] = (0, np.inf, index, node["leaf_value"])
        return
    first = len(rows)
    rows[index] = (node["split_feature"], node["threshold"], first, 0.0)
    rows.extend([(0, np.inf, 0, 0.0)] * 2)
    yield first, node["left_child"]
    yield first + 1, node["right_child"]


def save_learned(learned: Learned, path: Path) -> None:
    """Write ``learned`` as shipped: thresholds and values in single precision."""
    trees, known = learned.trees, learned.domain
    np.savez_compressed(
        path,
        feature=trees.feature.astype(np.int8),
        threshold=trees.threshold.astype(np.float32),
        left=trees.left,
        value=trees.value.astype(np.float32),
        roots=trees.roots,
        bounds=np.array([trees.low, trees.high]),
        devices=np.array(known.devices),
        dtypes=np.array(known.dtypes),
        backward=np.array(known.backward),
        least=np.array(known.low),
        largest=np.array(known.high),
    )
