"""Configuration files of DTR's experiments, read as they are.

Models have lists of commands; every list-valued field of a command unfolds, as in files of ours. A key that is not
known is an error, also one that DTR ignores where it stands.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias

import msgspec

from tensortide.errors import RequestError
from tensortide.plans.remat.policies import DEFAULT_POLICY
from tensortide.python_object import near
from tensortide.studies.experiment.grammar import (
    MOST,
    TOO_MANY,
    Experiment,
    check_finite,
    converted,
    fail,
    trial_of,
    unfolded,
    with_baselines,
)
from tensortide.studies.experiment.trials import Positive, Trial


class Model(NamedTuple):
    """A workload under a name of DTR's, and our names of the parameters that it has there."""

    workload: str
    renamed: Mapping[str, str] = {}


_SQUARE = {"height": "image", "width": "image"}
_LOOPED = {"batch_size": "seq", "input_size": "batch", "in_dim": "inputs", "mem_dim": "hidden"}
_IMAGES = "resnet20 resnet32 resnet44 resnet56 resnet110 resnet1202 tv_resnet18 tv_resnet34 tv_resnet50 tv_resnet101 "
_IMAGES += (
    "tv_resnet152 tv_densenet121 tv_densenet161 tv_densenet169 tv_densenet201 densenet100 inceptionv3 inceptionv4"
)
_WORDS = "lstm_encoder gru_encoder treelstm_old transformer_encoder"
_VECTORS = {"input_seq_length": "source_seq", "target_seq_length": "target_seq", "num_feature": "hidden"}
_GAN = {"g_hid": "hidden", "d_hid": "hidden", "g_inp": "latent", "unrolled_steps": "unroll"}
MODELS: dict[str, Model] = {
    **{name: Model(name, _SQUARE) for name in _IMAGES.split()},
    **{name: Model(name) for name in _WORDS.split()},
    "unet": Model("unet", {"height": "height", "width": "width"}),
    "lstm": Model("dtr_lstm", _LOOPED),
    "gru": Model("dtr_gru", _LOOPED),
    "treelstm": Model("dtr_treelstm", {**_LOOPED, "batch_size": "depth"}),
    "transformer": Model("dtr_transformer", _VECTORS),
    "unroll_gan": Model("unroll_gan", _GAN),
}
"""Workloads by the names that DTR has for them; any other name is that of a workload itself, with its parameters."""


_Kind: TypeAlias = Literal["fixed", "ratio", "param_sweep"]


class _Command(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Keys of a command, with single values. ``dry_run``: repetitions that do not count."""

    type: Literal["baseline", "dtr"]
    kind: _Kind = "fixed"
    batch_size: int | None = None
    memory_budget: float | None = None
    ratio: float | None = None
    timeout: float | None = None
    extra_params: dict[str, Any] = {}
    use_profiling: bool = True
    ignore_small_tensors: bool = False
    use_sampling: bool = False
    no_sampling_below_budget: float | None = None
    no_sampling_below_ratio: float | None = None
    dry_run: int | None = None
    n_inputs: Positive | None = None
    n_reps: int | None = None
    save_logs: bool | None = None


class _File(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Keys of a file."""

    dtr_settings: dict[str, Any]
    models: list[str]
    active: bool = True
    dtr_torch_cmd: str = ""
    dry_run: int = 0
    n_inputs: Positive = 1
    n_reps: int = 1
    sync_gpu: bool = True
    save_logs: bool = False
    log_dest: str = ""
    report_errors: bool = True
    set_seed: bool = False
    seed: int = 0
    notify: list[str] = []
    ignore_kind: list[_Kind] = []


_RETRIES = ("retry_on_error", "max_retries", "attempt_timeout")
"""Keys among the parameters of a model that are about its attempts."""
_BASELINE = ("batch_size",)
"""Keys of the default settings that baselines have, too."""


def dtr_experiment(path: Path, text: str) -> Experiment:
    """The experiment of a configuration file.

    Raises RequestError, with the file and the key, for a file that is none, one that is not active, a key that is not
    known, and a value that cannot be.
    """
    source = str(path)
    try:
        table = json.loads(text)
    except ValueError as error:
        raise RequestError(f"{path} is no JSON: {error}") from error
    if not isinstance(table, dict) or "dtr_settings" not in table:
        raise RequestError(f"{path} is no configuration of DTR: it has no dtr_settings")
    file: _File = converted({k: v for k, v in table.items() if not k.startswith("note_")}, _File, source, "")
    if not file.active:
        fail(source, "active", "the experiment is switched off: make it true")
    trials = [*islice((trial for model in file.models for trial in _trials(file, model, source)), MOST + 1)]
    if len(trials) > MOST:
        fail(source, "dtr_settings", TOO_MANY)
    return Experiment(
        name=path.stem,
        trials=with_baselines(trials),
        out=path.stem,
        stop_on_error=not file.report_errors,
        notes=tuple(_notes(file)),
    )


def _notes(file: _File) -> Iterator[str]:
    if file.dtr_torch_cmd:
        yield f"dtr_torch_cmd: {file.dtr_torch_cmd} is not started: every trial runs in this Python"
    if file.notify:
        yield f"notify: nobody is told ({', '.join(file.notify)}): a command of your own is notify of a TOML file"
    if file.save_logs and file.log_dest:
        yield f"log_dest: logs are written to the folder of the results, not to {file.log_dest}"


def _trials(file: _File, model: str, source: str) -> Iterator[Trial]:
    """The trials of all commands of ``model``, but for those of a kind to be ignored."""
    if not isinstance(commands := file.dtr_settings.get(model), list):
        fail(source, f"dtr_settings.{model}", "there is no list of commands for this model")
    default = file.dtr_settings.get("default", {})
    for number, command in enumerate(commands):
        where = f"dtr_settings.{model}[{number}]"
        if not isinstance(command, dict) or not isinstance(default, dict):
            fail(source, where, "a command is an object")
        is_baseline = command.get("type") == "baseline"
        given = {key: value for key, value in default.items() if not is_baseline or key in _BASELINE} | command
        for raw in unfolded(given, _Command, source, where):
            check_finite(raw, source, where)
            one: _Command = converted(raw, _Command, source, where)
            if one.kind not in file.ignore_kind:
                made = _as_trial(file, model, one, source, where)
                inputs = file.n_inputs if one.n_inputs is None else one.n_inputs
                seeds = range(file.seed, file.seed + inputs) if file.set_seed or inputs > 1 else (None,)
                yield from (trial_of({**made, "seed": seed}, source, where) for seed in seeds)


def _as_trial(file: _File, model: str, one: _Command, source: str, where: str) -> dict[str, Any]:
    """The keys of a trial that does what the command says, but for its seed."""
    extra = dict(one.extra_params)
    if wrong := [key for key in extra if key in _Command.__struct_fields__]:
        fail(source, f"{where}.extra_params", f"{wrong[0]} has no effect here: it is a key of the command")
    retry, most, attempt_s = (extra.pop(key, None) for key in _RETRIES)
    if one.batch_size is not None:
        extra["batch_size"] = one.batch_size
    made = {
        "workload": MODELS[model].workload if model in MODELS else model,
        "set": _settings(model, extra, source, f"{where}.extra_params"),
        "mode": "live",
        "repeats": file.n_reps if one.n_reps is None else one.n_reps,
        "dropped": file.dry_run if one.dry_run is None else one.dry_run,
        "steps": 1,
        "timeout": attempt_s or one.timeout,
        "retries": (1 if most is None else most) if retry else 0,
    }
    return made if one.type == "baseline" else made | _under_budget(file, one, source, where)


def _settings(model: str, given: Mapping[str, Any], source: str, where: str) -> dict[str, Any]:
    """Our settings of the parameters ``given``. Raises RequestError for one that a model of DTR's lacks, and for two
    values of what is one here."""
    own = MODELS[model].renamed if model in MODELS else {key: key for key in given if key != "batch_size"}
    names = {"batch_size": "batch", **own}
    settings: dict[str, Any] = {}
    for key, value in given.items():
        if key not in names:
            fail(source, where, f"{model} has no parameter {key!r}{near(key, names)}")
        if settings.setdefault(names[key], value) != value:
            fail(source, where, f"{key} is {value}, and {names[key]} {settings[names[key]]} already: one value is both")
    return settings


def _under_budget(file: _File, one: _Command, source: str, where: str) -> dict[str, Any]:
    """The policy and the budget of a command."""
    by_ratio = one.kind == "ratio"
    key = "ratio" if by_ratio else "memory_budget"
    if (value := getattr(one, key)) is None:
        fail(source, where, f"a command of kind {one.kind} needs a {key}")
    least = one.no_sampling_below_ratio if by_ratio else one.no_sampling_below_budget
    samples = one.use_sampling and (least is None or value >= least)
    policy = DEFAULT_POLICY + "+sqrt" * samples + "+large" * one.ignore_small_tensors
    budget = f"{value:.12f}" if by_ratio else "unlimited" if value < 0 else f"{int(value)}B"
    save_log = file.save_logs if one.save_logs is None else one.save_logs
    return {"policy": policy, "budget": budget, "save_log": save_log}
