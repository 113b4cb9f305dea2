"""Launchers of training scripts: the processes that one starts, and the variables that it gives each of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from tensortide.errors import WorkloadError

UNKNOWN = 0
"""Number of processes of a launcher that starts one for each GPU."""
ACCELERATE_LAUNCH = ("accelerate-launch", "accelerate.commands.launch")
ACCELERATE = frozenset(("accelerate", "accelerate.commands.accelerate_cli", *ACCELERATE_LAUNCH))
"""Command and modules of a launcher whose settings stand in a file, too: it is asked itself."""
_COUNT = re.compile(r"(?:\d+:)?(\d+)")
_EACH_GPU = ("gpu", "auto", "cpu", "xpu", "0")
"""Numbers of processes that the machine decides."""
_FLAGS = (
    *("h", "help", "standalone", "m", "module", "no_python", "run_path", "virtual_local_rank", "use_env"),
    *("no_local_rank", "no_ssh", "no_ssh_check", "force_multi", "save_pid", "bind_cores_to_rank", "elastic_training"),
)
"""Options of launchers of scripts in Python that no value follows."""
_OF_JOB = {
    "master_addr": "MASTER_ADDR",
    "master_port": "MASTER_PORT",
    "role": "ROLE_NAME",
    "max_restarts": "TORCHELASTIC_MAX_RESTARTS",
    "rdzv_id": "TORCHELASTIC_RUN_ID",
}
"""Variables of all processes, by the options that set them."""
_VARIABLE = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)


class Place(NamedTuple):
    """The process that is recorded: its rank among ``ranks``, ``per_node`` of them on each node."""

    rank: int
    ranks: int
    per_node: int

    def __str__(self) -> str:
        return f"rank {self.rank} of {self.ranks}: collectives move no data"

    @property
    def local(self) -> int:
        """Its rank on its node."""
        return self.rank % self.per_node

    @property
    def node(self) -> int:
        """The number of its node."""
        return self.rank // self.per_node

    @property
    def nodes(self) -> int:
        """The number of nodes."""
        return -(-self.ranks // self.per_node)


@dataclass(frozen=True)
class Launch:
    """A launcher, and what it starts: ``ranks`` processes (None: one, as without a launcher), ``per_node`` on each
    node, of which ``first`` is recorded unless another is asked for.

    ``environment`` are variables of its own; the local rank follows ``argument`` on the command line.
    """

    launcher: str = ""
    ranks: int | None = None
    per_node: int = 0
    first: int = 0
    environment: tuple[tuple[str, str], ...] = ()
    argument: str = ""

    def place(self, ranks: int | None, rank: int | None) -> Place | None:
        """The process to record where ``ranks`` and ``rank`` are asked for; None for one that is alone.

        Raises WorkloadError where they contradict the launcher, or the rank is out of range.
        """
        if ranks is not None and self.ranks not in (None, UNKNOWN, ranks):
            raise WorkloadError(
                f"{self.launcher} starts {self.ranks} processes, but --ranks is {ranks}: leave one of them out"
            )
        if ranks is None and self.ranks == UNKNOWN:
            raise WorkloadError(f"{self.launcher} starts a process for each GPU: --ranks N says how many there are")
        return place_of(ranks or self.ranks, self.first if rank is None else rank, self.per_node)

    def variables(self, at: Place | None) -> dict[str, str]:
        """The environment variables of a process."""
        row = _row(self.launcher)
        given = {} if at is None else (rank_variables if row is None else row.variables)(at)
        return {**given, **dict(self.environment)}


def place_of(ranks: int | None, rank: int = 0, per_node: int = 0) -> Place | None:
    """The process ``rank`` of so many, ``per_node`` on each node (0: all on one); None for one that is alone.

    Raises WorkloadError for a rank that is not among them.
    """
    if ranks is None:
        if rank:
            raise WorkloadError(f"rank {rank} is one of several processes: --ranks N (ranks=N) says of how many")
        return None
    if ranks < 1:
        raise WorkloadError(f"--ranks (ranks=) takes a number of processes from 1 up, not {ranks}")
    if not 0 <= rank < ranks:
        raise WorkloadError(f"there is no rank {rank} of {ranks}: ranks are counted from 0 to {ranks - 1}")
    return Place(rank, ranks, min(per_node or ranks, ranks))


def rank_variables(at: Place) -> dict[str, str]:
    """The variables that PyTorch reads."""
    numbers = {"RANK": at.rank, "LOCAL_RANK": at.local, "WORLD_SIZE": at.ranks, "LOCAL_WORLD_SIZE": at.per_node}
    return {**{name: str(number) for name, number in numbers.items()}, **ADDRESS}


ADDRESS = {"MASTER_ADDR": "localhost", "MASTER_PORT": "29500"}
"""Variables that the program may have been given: where its processes meet."""


def _of_torchrun(at: Place) -> dict[str, str]:
    numbers = {
        "GROUP_RANK": at.node,
        "GROUP_WORLD_SIZE": at.nodes,
        "ROLE_RANK": at.rank,
        "ROLE_WORLD_SIZE": at.ranks,
        "TORCHELASTIC_RESTART_COUNT": 0,
        "TORCHELASTIC_MAX_RESTARTS": 0,
        "TORCHELASTIC_RUN_ID": "none",
        "ROLE_NAME": "default",
        "TORCHELASTIC_USE_AGENT_STORE": True,
    }
    return {**rank_variables(at), **{name: str(number) for name, number in numbers.items()}}


def _of_deepspeed(at: Place) -> dict[str, str]:
    numbers = {"LOCAL_SIZE": at.per_node, "CROSS_RANK": at.node, "CROSS_SIZE": at.nodes}
    return {**rank_variables(at), **{name: str(number) for name, number in numbers.items()}}


def _of_mpi(at: Place) -> dict[str, str]:
    numbers = {
        "OMPI_COMM_WORLD_RANK": at.rank,
        "OMPI_COMM_WORLD_SIZE": at.ranks,
        "OMPI_COMM_WORLD_LOCAL_RANK": at.local,
        "OMPI_COMM_WORLD_LOCAL_SIZE": at.per_node,
    }
    return {name: str(number) for name, number in numbers.items()}


def _of_slurm(at: Place) -> dict[str, str]:
    numbers = {
        "SLURM_PROCID": at.rank,
        "SLURM_NTASKS": at.ranks,
        "SLURM_NPROCS": at.ranks,
        "SLURM_LOCALID": at.local,
        "SLURM_NODEID": at.node,
        "SLURM_NNODES": at.nodes,
        "SLURM_JOB_NUM_NODES": at.nodes,
        "SLURM_JOB_ID": 1,
        "SLURM_NTASKS_PER_NODE": at.per_node,
        "SLURM_NODELIST": "localhost",
        "SLURM_JOB_NODELIST": "localhost",
    }
    return {name: str(number) for name, number in numbers.items()}


class _Launcher(NamedTuple):
    """A launcher: its commands and modules, its options (without their dashes) for processes of a node, of the whole
    job, for nodes, and for the number of this node; the processes of a node where none says so; the variables that it
    sets, the argument that has the local rank, and the options without which it is given; True if it starts any
    command, not only scripts in Python; and the option that names hosts with their GPUs."""

    names: tuple[str, ...]
    per_node: tuple[str, ...] = ()
    whole: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()
    node: tuple[str, ...] = ()
    default: int = 1
    variables: Callable[[Place], dict[str, str]] = _of_mpi
    argument: str = ""
    unless: tuple[str, ...] = ()
    any_command: bool = False
    hosts: str = ""

    @property
    def of_torch(self) -> bool:
        """True for a launcher of PyTorch, whose options may be shortened or stand in variables."""
        return self.variables is _of_torchrun


_PER_NODE, _NODES, _NODE = ("nproc_per_node",), ("nnodes",), ("node_rank",)
LAUNCHERS = (
    _Launcher(
        ("torchrun", "torchrun.py", "torch.distributed.run"), _PER_NODE, (), _NODES, _NODE, variables=_of_torchrun
    ),
    _Launcher(
        ("torch.distributed.launch",), _PER_NODE, (), _NODES, _NODE, 1, _of_torchrun, "--local-rank=", ("use_env",)
    ),
    _Launcher(
        *(("deepspeed", "deepspeed.launcher.runner"), ("num_gpus",), (), ("num_nodes",), ("node_rank",)),
        *(UNKNOWN, _of_deepspeed, "--local_rank=", ("no_local_rank",)),
        hosts="include",
    ),
    _Launcher(("srun",), ("ntasks_per_node",), ("ntasks", "n"), ("nodes", "N"), variables=_of_slurm, any_command=True),
    _Launcher(("mpirun", "mpiexec"), ("npernode", "N", "ppn"), ("np", "n"), default=UNKNOWN, any_command=True),
    _Launcher(("horovodrun",), (), ("np", "num_proc"), default=UNKNOWN, any_command=True),
)
"""Commands and modules that start a script in other processes."""


def _row(name: str) -> _Launcher | None:
    return next((row for row in LAUNCHERS if name in row.names), None)


def is_launcher(word: str) -> bool:
    """Tell whether ``word`` is the command or the module of a launcher."""
    name = Path(word).name
    return name in ACCELERATE or _row(name) is not None


def starts_any(name: str, own: Sequence[str]) -> bool:
    """Tell whether the launcher ``name`` starts any command, and not a script in Python."""
    row = _row(name)
    return (row is not None and row.any_command) or any(word in ("--no-python", "--no_python") for word in own)


def script_at(words: Sequence[str]) -> int:
    """The number of the word that names the script, after a launcher's own options; that of words if none does."""
    at = 0
    while at < len(words) and words[at].startswith("-"):
        word, at = words[at], at + 1
        if word == "--":
            break
        alone = "=" in word or _name(word) in _FLAGS or (len(word) > 2 and word[1] != "-")
        at += not (alone or words[at : at + 1] == [] or words[at].endswith(".py"))
    return at


def launched(name: str, own: Sequence[str], environment: Mapping[str, str] = {}) -> Launch:
    """The processes that the launcher ``name`` starts by its ``own`` options, in its ``environment``.

    Raises WorkloadError for a number of processes that is none.

    Examples:
        >>> launched("torchrun", ["--nnodes=2", "--nproc-per-node", "4"]).ranks
        8
    """
    row = _row(name)
    assert row is not None
    values = {
        **{each[4:].lower(): value for each, value in environment.items() if row.of_torch and each.startswith("PET_")},
        **_values(own, row),
    }

    def number(names: Sequence[str]) -> int | None:
        given = next((values[each] for each in names if each in values), None)
        found = None if given is None else _COUNT.fullmatch(given)
        return None if given is None else UNKNOWN if found is None else int(found[1])

    for each in (*row.per_node, *row.whole):
        if each in values and not _COUNT.fullmatch(values[each]) and values[each] not in _EACH_GPU:
            raise WorkloadError(f"{name} takes a number of processes ({each}), not {values[each] or 'nothing'}")
    hosts = [host.partition(":")[2].split(",") for host in values.get(row.hosts, "").split("@") if ":" in host]
    nodes, whole = number(row.nodes) or len(hosts) or 1, number(row.whole)
    per_node = number(row.per_node) or (len(hosts[0]) if hosts else None)
    if per_node is None:
        asked = any(each in values for each in row.per_node)
        per_node = UNKNOWN if asked else row.default if whole is None else -(-whole // nodes)
    ranks = per_node * nodes if whole is None else whole
    argument = "" if any(each in values for each in row.unless) else row.argument
    job = {_OF_JOB[each]: value for each, value in values.items() if row.of_torch and each in _OF_JOB}
    return Launch(name, ranks, per_node, (number(row.node) or 0) * per_node, (*job.items(),), argument)


def _name(word: str) -> str:
    return word.partition("=")[0].lstrip("-").replace("-", "_")


def _values(own: Sequence[str], row: _Launcher) -> dict[str, str]:
    """The values of options, by their names without dashes; empty where none follows."""
    values: dict[str, str] = {}
    known = (*row.per_node, *row.whole, *row.nodes, *row.node, row.hosts)
    for at, word in enumerate(own):
        if not word.startswith("-"):
            continue
        name, given, value = _name(word), *word.partition("=")[1:]
        if word[1] != "-" and name[:1] in known and name[1:].isdigit():  # -n8
            name, given, value = name[0], "=", name[1:]
        follows = own[at + 1] if at + 1 < len(own) else ""
        if not given:
            value = follows if not follows.startswith("-") or follows[1:].isdigit() else ""
        whole = [each for each in known if row.of_torch and len(name) > 2 and each.startswith(name)]
        values[whole[0] if len(whole) == 1 else name] = value
    return values


def assigned(words: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """The variables that stand before a command, with or without ``env``, and the command."""
    rest = list(words)
    found: dict[str, str] = {}
    if rest and rest[0] == "env":
        rest.pop(0)
        if rest and rest[0].startswith("-"):
            raise WorkloadError(f"env {rest[0]} is not understood: leave it out, as in -- A=1 python train.py")
    while rest and (variable := _VARIABLE.fullmatch(rest[0])) is not None:
        found[variable[1]] = variable[2]
        rest.pop(0)
    return found, rest
