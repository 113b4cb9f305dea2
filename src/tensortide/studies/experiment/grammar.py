"""Files of experiments: TOML in which lists unfold as a product, and what comes of them."""

from __future__ import annotations

import hashlib
import itertools
import math
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, NoReturn, get_args, get_type_hints

import msgspec
from msgspec import Meta

from tensortide.errors import RequestError, TensortideError
from tensortide.file_faults import reading
from tensortide.python_object import near
from tensortide.replays.remat.budgets import one_budget
from tensortide.replays.remat.simulation import UNLIMITED
from tensortide.studies.experiment.trials import NONE, Trial

MOST = 10_000
"""Most trials of an experiment."""
TOO_MANY = f"more than {MOST:,} trials: shorten its lists"


class Head(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Keys of an experiment as a whole."""

    name: Annotated[str, Meta(description="Its name (default: that of the file).")] = ""
    out: Annotated[str, Meta(description="Folder of the results (default: the name of the file).")] = ""
    jobs: Annotated[int, Meta(ge=1, description="Trials that run at once; live ones disturb each other.")] = 1
    cluster: Annotated[str | None, Meta(description="A Ray cluster to run them on: HOST:PORT, auto or local.")] = None
    stop_on_error: Annotated[bool, Meta(description="Start no further trial once one has failed.")] = False
    notify: Annotated[list[str], Meta(description="A command of your own that runs at the end.")] = []
    defaults: Annotated[dict[str, Any], Meta(description="Keys of runs, for those that lack them.")] = {}
    runs: Annotated[list[dict[str, Any]], Meta(description="The runs: keys of trials, of which any may be a list.")]


class Experiment(msgspec.Struct, frozen=True, kw_only=True):
    """Trials, each once, the baselines among them; and how they are run. ``notes``: what was read and left out."""

    name: str
    trials: tuple[Trial, ...]
    out: str = ""
    jobs: int = 1
    cluster: str | None = None
    stop_on_error: bool = False
    notify: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def digest(self) -> str:
        """Hexadecimal digest of the trials."""
        return hashlib.sha256("".join(sorted(trial.key for trial in self.trials)).encode()).hexdigest()[:12]


def read_experiment(path: Path) -> Experiment:
    """The experiment of a TOML file, or of a JSON file of DTR.

    Raises RequestError, with the file and the key, for a file that is none, a key that is not known, and a value that
    cannot be.
    """
    try:
        text = path.read_text("utf-8-sig")  # some editors begin with a mark
    except (OSError, UnicodeDecodeError) as error:
        raise RequestError(f"cannot read {path}: {getattr(error, 'strerror', '') or error}") from error
    if path.suffix == ".json":
        from tensortide.studies.experiment.dtr_files import dtr_experiment

        with reading(path, RequestError):
            return dtr_experiment(path, text)
    try:
        with reading(path, RequestError):
            table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise RequestError(f"{path} is no TOML: {error}") from error
    return experiment_of(table, str(path), path.stem)


def experiment_of(table: Mapping[str, Any], source: str = "the experiment", name: str = "experiment") -> Experiment:
    """The experiment of a ``table`` with the keys of a file; errors name its ``source``.

    Raises RequestError as ``read_experiment``.
    """
    if isinstance(table.get("runs"), dict):
        fail(source, "runs", "each run is a table of a list: write [[runs]], with two brackets")
    head: Head = converted(table, Head, source, "")
    for key, words in (("out", [head.out]), ("notify", head.notify)):
        if any("\0" in word for word in words):
            fail(source, key, "NUL can be in no path and in no argument of a command")
    check_keys(head.defaults, Trial, source, "defaults")
    trials: list[Trial] = []
    for number, run in enumerate(head.runs):
        where = f"runs[{number}]"
        check_keys(run, Trial, source, where)
        trials += (trial_of(raw, source, where) for raw in unfolded(merged(head.defaults, run), Trial, source, where))
        if len(trials) > MOST:
            fail(source, where, TOO_MANY)
    return Experiment(
        name=head.name or name,
        trials=with_baselines(trials),
        out=head.out or name,
        jobs=head.jobs,
        cluster=head.cluster,
        stop_on_error=head.stop_on_error,
        notify=tuple(head.notify),
    )


def merged(defaults: Mapping[str, Any], run: Mapping[str, Any]) -> dict[str, Any]:
    """The keys of a run, with those of ``defaults`` that it lacks; of settings one by one."""
    settings = [part["set"] for part in (defaults, run) if isinstance(part.get("set"), dict)]
    both = {**defaults, **run}
    return both | {"set": {**settings[0], **settings[1]}} if len(settings) == 2 else both


def _axes(run: Mapping[str, Any], kind: type[msgspec.Struct]) -> Iterator[tuple[tuple[str, ...], Sequence[Any]]]:
    """The lists of a run, by their keys in the order of those of ``kind``."""
    for name in kind.__struct_fields__:
        value = run.get(name)
        if isinstance(value, list):
            yield (name,), value
        elif isinstance(value, dict):
            yield from (((name, key), each) for key, each in value.items() if isinstance(each, list))


def unfolded(
    run: Mapping[str, Any], kind: type[msgspec.Struct] = Trial, source: str = "", where: str = ""
) -> Iterator[dict[str, Any]]:
    """Yield each combination of the values in the lists of ``run``, which has keys of ``kind``, the last list fastest.
    Raises RequestError for an empty list, and for too many combinations.

    Examples:
        >>> [(one["policy"], one["set"]["n"]) for one in unfolded({"policy": ["a", "b"], "set": {"n": [1, 2]}})]
        [('a', 1), ('b', 1), ('a', 2), ('b', 2)]
    """
    axes = [*_axes(run, kind)]
    for path, values in axes:
        if not values:
            fail(source, ".".join((where, *path)), "no trial comes of an empty list")
    if math.prod(len(values) for _, values in axes) > MOST:
        fail(source, where, TOO_MANY)
    for values in itertools.product(*(values for _, values in axes)):
        made = {key: dict(value) if isinstance(value, dict) else value for key, value in run.items()}
        for (path, _), value in zip(axes, values, strict=True):
            owner = made if len(path) == 1 else made[path[0]]
            owner[path[-1]] = value
        yield made


def trial_of(raw: Mapping[str, Any], source: str, where: str) -> Trial:
    """The trial of one combination. Raises RequestError for a value that cannot be, or values that do not go
    together."""
    made = dict(raw)
    check_finite(made, source, where)
    if isinstance(settings := made.get("set"), dict):
        check_finite(settings, source, f"{where}.set")
        for name in settings:
            if "=" in name:
                fail(source, f"{where}.set", f"{name!r} is the name of no hyperparameter")
    if "budget" in made:
        made["budget"] = _budget(made["budget"], source, f"{where}.budget")
    trial: Trial = converted(made, Trial, source, where)
    if (fault := trial.fault()) is not None:
        fail(source, f"{where}.{fault[0]}", fault[1])
    return trial.canonical()


def _budget(value: Any, source: str, where: str) -> dict[str, Any] | None:
    """The fields of a Budget: numbers are read as on the command line, floats up to 10 as ratios."""
    if value in (NONE, None):
        return None
    if value in ("unlimited", -1):
        return {"nbytes": UNLIMITED}
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    # What rounds to 0 below is none: the text of a ratio has 12 digits.
    if not (isinstance(value, str) or (is_number and round(value, 12) > 0)):
        fail(source, where, f"{value!r} is no budget: write 0.6, '60%', '8GiB' or 'unlimited'")
    if not isinstance(value, str):
        value = str(int(value)) if isinstance(value, int) or value > 10 else f"{value:.12f}"
    try:
        found = one_budget(value, "a list")
    except TensortideError as error:
        fail(source, where, str(error))
    if found.of_activations:
        fail(source, where, f"{value!r}: an experiment knows the peak of its baseline alone: write a part of that, 60%")
    return {"ratio": found.ratio, "nbytes": found.nbytes}


def with_baselines(trials: Sequence[Trial]) -> tuple[Trial, ...]:
    """The trials, each once and after its baseline."""
    found: dict[str, Trial] = {}
    for trial in trials:
        for one in (trial.baseline, trial):
            found.setdefault(one.key, one)
    return tuple(found.values())


# -- errors -----------------------------------------------------------------------------------------


def fail(source: str, where: str, reason: str) -> NoReturn:
    """Raise RequestError at the key ``where``."""
    raise RequestError(f"{source}: {where}: {reason}" if where else f"{source}: {reason}")


def check_keys(table: Mapping[str, Any], kind: type[msgspec.Struct], source: str, where: str) -> None:
    """Raise RequestError for a key that ``kind`` has not."""
    known = kind.__struct_fields__
    for key in table:
        if key not in known:
            fail(source, where, f"there is no key {key!r}{near(key, known)}")


def check_finite(table: Mapping[str, Any], source: str, where: str) -> None:
    """Raise RequestError for a value that is no number of anything."""
    for key, value in table.items():
        if isinstance(value, float) and not math.isfinite(value):
            fail(source, f"{where}.{key}", f"{value} is no number of anything")


def converted(table: Mapping[str, Any], kind: Any, source: str, where: str) -> Any:
    """Make a ``kind`` of ``table``. Raises RequestError with the path of the key."""
    check_keys(table, kind, source, where)
    try:
        return msgspec.convert(dict(table), kind)
    except msgspec.ValidationError as error:
        reason, _, at = str(error).partition(" - at `$")
        path = re.sub(r"`$", "", at).lstrip(".").replace("[...]", "")
        if (wrong := re.fullmatch(r"Invalid enum value '(.*)'", reason)) and isinstance(table.get(path), str):
            reason = f"{wrong[1]!r} is none of its values: {', '.join(_values(kind, path))}"
        fail(source, ".".join(part for part in (where, path) if part), reason)


def _values(kind: Any, key: str) -> Sequence[str]:
    """The values of a key that has a few."""
    return get_args(get_type_hints(kind)[key])
