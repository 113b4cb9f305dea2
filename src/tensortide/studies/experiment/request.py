"""Questions about experiments: the trials of a file run, and the results of two folders compared."""

from __future__ import annotations

import fnmatch
import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import msgspec

from tensortide.errors import RequestError
from tensortide.executors import LOCAL
from tensortide.progress import Say, silent
from tensortide.request import Arg, Opt, OutFolder, Request
from tensortide.studies.experiment.checks import check
from tensortide.studies.experiment.comparison import Compared, compared
from tensortide.studies.experiment.grammar import Experiment, read_experiment, with_baselines
from tensortide.studies.experiment.results import read_results
from tensortide.studies.experiment.runner import Conducted, conduct, notify
from tensortide.studies.experiment.trials import Trial

LOG = logging.getLogger("tensortide")


@dataclass(frozen=True, kw_only=True)
class TrialsRequest(Request):
    """Trials of a file to be run, and the folder that keeps their results."""

    GROUP = "The trials"

    target: Annotated[
        Path, Arg("A file of an experiment (.toml, docs/experiments.md), or a configuration file of DTR (.json).")
    ]
    out: Annotated[
        Path | None,
        OutFolder(
            "Folder of the results; trials that have one there are not repeated (default: that of the file, or its "
            "name)."
        ),
    ] = None
    dry_run: Annotated[bool, Opt("List the trials, and run none.", common=True)] = False
    only: Annotated[
        tuple[str, ...],
        Opt("Run the trials of a workload by a policy, as patterns: gpt2/dtr-*, */lru.", common=True, value="PATTERN"),
    ] = ()
    jobs: Annotated[
        int | None, Opt("Trials that run at once (default: as the file says, else 1).", least=1, common=True)
    ] = None
    cluster: Annotated[
        str | None,
        Opt(
            f"Ray cluster to run them on: its address (HOST:PORT, auto), or {LOCAL} (default: as the file says).",
            value="ADDRESS",
        ),
    ] = None
    retry_failed: Annotated[bool, Opt("Repeat the trials that have failed, and keep the others.", common=True)] = False

    def experiment(self) -> Experiment:
        """The trials that are asked for, with their baselines."""
        found = read_experiment(self.target)
        trials = found.trials if not self.only else with_baselines([one for one in found.trials if self._wants(one)])
        if not trials:
            raise RequestError(f"no trial is called {' or '.join(self.only) or 'anything'}: --dry-run lists them")
        jobs, cluster = self.jobs or found.jobs, self.cluster or found.cluster
        return msgspec.structs.replace(found, trials=trials, jobs=jobs, cluster=cluster)

    def _wants(self, trial: Trial) -> bool:
        return any(fnmatch.fnmatchcase(f"{trial.workload}/{trial.policy}", pattern) for pattern in self.only)


def answer(
    asked: TrialsRequest, say: Say = silent, draw: Callable[[Conducted], None] = lambda so_far: None
) -> Conducted:
    """The outcome of each trial; with ``dry_run`` those that are known. ``draw`` writes a page meanwhile."""
    experiment = asked.experiment()
    folder = asked.out or Path(experiment.out)
    if folder.is_file():
        raise RequestError(f"the results go to {folder}, which is a file: give --out the name of a folder")
    for note in experiment.notes:
        LOG.info("%s", note)
    check(experiment, str(asked.target))
    if asked.dry_run:
        known = read_results(folder) if (folder / "results.jsonl").is_file() else {}
        return Conducted(experiment, folder, {trial.key: trial for trial in experiment.trials}, known)
    found = conduct(experiment, folder, retry_failed=asked.retry_failed, draw=draw, say=say)
    notify(found)
    return found


@dataclass(frozen=True, kw_only=True)
class CompareTrialsRequest(Request):
    """Two folders of results to be compared."""

    GROUP = "The trials"

    first: Annotated[Path, Arg("Folder of results of an experiment.")]
    second: Annotated[Path, Arg("Folder to compare with it.")]


def answer_compare(asked: CompareTrialsRequest) -> Compared:
    """The trials that both folders have, side by side."""
    return compared(asked.first, asked.second)
