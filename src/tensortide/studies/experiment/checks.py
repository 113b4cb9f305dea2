"""Trials looked at before any runs: files that are missing, functions that they lack, what does not go together."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable
from pathlib import Path

from tensortide.errors import NotHere, RequestError, TensortideError
from tensortide.importers.door import recognize
from tensortide.plans.model import load_plan
from tensortide.python_object import check_name, is_path, names_object
from tensortide.recorder.script_command import find_script
from tensortide.recorder.target import workload
from tensortide.studies.experiment.captures import requested
from tensortide.studies.experiment.grammar import Experiment, fail
from tensortide.studies.experiment.trials import Trial
from tensortide.targets.machines import device_named, full_name, is_local
from tensortide.targets.opening import settings_of, step_of


def check(experiment: Experiment, source: str) -> None:
    """Look at each trial; no file of the user's runs.

    Raises RequestError, with the file, the key and its value, for what no trial could run with.
    """
    known = set[tuple[str, str]]()
    for trial in experiment.trials:
        for key, (value, look) in _looks(trial).items():
            if (key, value) in known:
                continue
            known.add((key, value))
            try:
                with contextlib.suppress(NotHere):  # its trials will tell; others can run
                    look()
            except TensortideError as error:
                fail(source, f"{key} = {value}", " ".join(str(error).split()))


def _looks(trial: Trial) -> dict[str, tuple[str, Callable[[], object]]]:
    """The keys to look at, each with its value in words and the function that raises what is wrong with it."""
    looks: dict[str, tuple[str, Callable[[], object]]] = {
        "workload": (f"{trial.workload}, mode = {trial.mode}", lambda: _workload(trial)),
    }
    if trial.set and not _is_own(trial.workload):
        looks["set"] = (f"{trial.set}, workload = {trial.workload}", lambda: _settings(trial))
    if trial.machine is not None and not is_local(machine := trial.machine):
        looks["machine"] = (machine, lambda: device_named(full_name(machine)))
    if names_object(trial.policy):
        looks["policy"] = (trial.policy, lambda: _function(trial.policy))
    elif is_path(trial.policy):
        looks["policy"] = (trial.policy, lambda: load_plan(trial.policy))
    if trial.device is not None and not _is_file(trial.workload):
        looks["device"] = (device := trial.device, lambda: _device(device))
    return looks


def _is_own(target: str) -> bool:
    """Tell a target of the user's own from a built-in workload."""
    return names_object(target) or is_path(target) or find_script(target) is not None


def _is_file(target: str) -> bool:
    """Tell a saved step, whose devices have names of their own, from a workload and a script."""
    return is_path(target) and not names_object(target) and find_script(target) is None


def _device(name: str) -> None:
    """Raise RequestError for what no step is captured for, and none runs on."""
    if re.fullmatch(r"(cpu|cuda)(:\d+)?", name) is None:
        raise RequestError("a step is captured for and runs on cpu or cuda")


def _workload(trial: Trial) -> None:
    """Raise TensortideError for a target that is not there, and one without a step to call where the trial is live."""
    if names_object(trial.workload):
        _function(trial.workload)
    elif not _is_own(trial.workload):
        workload(trial.workload)
    elif trial.mode == "live":
        step_of(trial.workload, "a live trial")
    elif find_script(trial.workload) is None and recognize(Path(trial.workload)) is None:
        workload(trial.workload)


def _function(text: str) -> None:
    """Raise WorkloadError for a function of a file that is missing or, by its text, lacks it."""
    place, _, name = text.rpartition(":")
    check_name(place, name.split(".")[0])


def _settings(trial: Trial) -> None:
    settings_of(workload(trial.workload), requested(trial, measure=False).capture)
