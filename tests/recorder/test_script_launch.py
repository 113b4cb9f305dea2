"""Commands that launch a script are read as people type them: the processes, their variables, the script."""

from __future__ import annotations

import json
import platform
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tensortide.errors import WorkloadError
from tensortide.recorder.script import ScriptOptions
from tensortide.recorder.script_command import Script, find_script
from tensortide.recorder.script_handover import trains
from tensortide.recorder.script_launch import Place, launched
from tests.recorder.script_run import forked

SHOW = """
import json, os, sys
names = ("RANK", "WORLD_SIZE", "LOCAL_", "GROUP_", "ROLE_", "MASTER_ADDR", "TORCHELASTIC", "ACCELERATE_", "FSDP_")
open("shown.json", "w").write(json.dumps({k: v for k, v in os.environ.items() if k.startswith(names)}))
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pkg").mkdir()
    for name in ("train.py", "pkg/train.py"):
        (tmp_path / name).write_text(SHOW)
    return tmp_path


def found(command: str) -> Script:
    script = find_script(f"-- {command}")
    assert script is not None
    return script


@pytest.mark.parametrize(
    ("command", "target", "arguments", "ranks", "per_node"),
    [
        ("torchrun train.py", "train.py", "", 1, 1),
        ("torchrun --nproc_per_node=8 --nnodes=2 train.py --lr 1", "train.py", "--lr 1", 16, 8),
        ("torchrun --standalone --nproc-per-node 4 --tee 3 -m pkg.train -x", "pkg.train", "-x", 4, 4),
        ("torchrun --nnodes 1:4 --nproc_per_node 2 --module pkg.train", "pkg.train", "", 8, 2),
        ("torchrun --no-python --nproc_per_node 2 python -u train.py", "train.py", "", 2, 2),
        ("python -m torch.distributed.run --nproc_per_node=4 train.py", "train.py", "", 4, 4),
        ("deepspeed --num_gpus 2 --num_nodes 2 train.py --deepspeed c.json", "train.py", "--deepspeed c.json", 4, 2),
        ("srun -N 2 --ntasks-per-node=4 python train.py", "train.py", "", 8, 4),
        ("srun --nodes=2 torchrun --nnodes=2 --nproc_per_node=8 train.py", "train.py", "", 16, 8),
        ("torchrun --module --nproc_per_node 2 pkg.train --lr 1", "pkg.train", "--lr 1", 2, 2),
        ("torchrun --nproc 4 -- train.py", "train.py", "", 4, 4),
        ("PET_NNODES=2 PET_NPROC_PER_NODE=4 torchrun train.py", "train.py", "", 8, 4),
        ("deepspeed --include a:0,1@b:0,1 train.py", "train.py", "", 4, 2),
        ("srun -N2 -n8 python train.py", "train.py", "", 8, 4),
        (f"python {Path(sys.executable).parent}/torchrun --nproc_per_node 2 train.py", "train.py", "", 2, 2),
        ("mpirun -np 4 python train.py", "train.py", "", 4, 4),
        ("OMP_NUM_THREADS=2 python train.py --x", "train.py", "--x", None, 0),
        ("env A=1 B=2 python -m pkg.train", "pkg.train", "", None, 0),
        ("uv run --with torch python train.py", "train.py", "", None, 0),
        ("nohup nice -n 5 python train.py", "train.py", "", None, 0),
    ],
)
def test_a_launcher_says_how_many_processes_run_which_script(
    command: str, target: str, arguments: str, ranks: int | None, per_node: int, here: Path
) -> None:
    del here
    script = found(command)
    assert (script.target, " ".join(script.arguments)) == (target, arguments)
    assert (script.launch.ranks, script.launch.per_node) == (ranks, per_node)


def test_a_process_has_the_variables_of_its_launcher_and_those_before_the_command(here: Path) -> None:
    del here
    script = found("SEED=3 torchrun --nproc_per_node=8 --nnodes=2 --node_rank 1 train.py")
    place = script.launch.place(None, None)
    assert place == Place(8, 16, 8)
    given = script.launch.variables(place)
    expected = {"RANK": "8", "LOCAL_RANK": "0", "WORLD_SIZE": "16", "LOCAL_WORLD_SIZE": "8", "GROUP_RANK": "1"}
    assert {name: given[name] for name in expected} == expected
    assert given["SEED"] == "3"
    assert script.launch.place(None, 11) == Place(11, 16, 8)


def test_options_of_the_job_are_variables(here: Path) -> None:
    del here
    given = found("torchrun --master_port 1 --rdzv-id=7 --role r --max_restarts=2 train.py").launch.variables(None)
    expected = {"MASTER_PORT": "1", "ROLE_NAME": "r", "TORCHELASTIC_MAX_RESTARTS": "2", "TORCHELASTIC_RUN_ID": "7"}
    assert given == expected


def test_a_launcher_that_passes_the_local_rank_does_so(here: Path) -> None:
    del here
    script = found("deepspeed --num_gpus 8 train.py --x")
    assert script.at(script.launch.place(None, 5)).arguments == ("--local_rank=5", "--x")
    assert found("deepspeed --no_local_rank --num_gpus 8 train.py").launch.argument == ""


@pytest.mark.parametrize(
    ("command", "ranks", "rank", "said"),
    [
        ("torchrun --nproc_per_node 8 train.py", 4, None, "torchrun starts 8 processes, but --ranks is 4"),
        ("torchrun --nproc_per_node gpu train.py", None, None, "torchrun starts a process for each GPU: --ranks N"),
        ("deepspeed train.py", None, None, "deepspeed starts a process for each GPU: --ranks N"),
        ("torchrun --nproc_per_node 8 train.py", None, 8, "there is no rank 8 of 8: ranks are counted from 0 to 7"),
        ("python train.py", None, 2, "rank 2 is one of several processes: --ranks N"),
    ],
)
def test_ranks_that_contradict_the_launcher_are_one_line(
    command: str, ranks: int | None, rank: int | None, said: str, here: Path
) -> None:
    del here
    with pytest.raises(WorkloadError, match=said):
        found(command).launch.place(ranks, rank)


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("ls -l", "ls is no Python script, and no launcher or shell script"),
        ("torchrun --nproc_per_node 2", "torchrun is given no script"),
        ("torchrun missing.py", "missing.py is not there"),
        ("torchrun --nproc_per_node none train.py", "torchrun takes a number of processes .nproc_per_node., not none"),
        ("torchrun --nproc_per_node -1 train.py", "torchrun takes a number of processes .nproc_per_node., not -1"),
        ("env -i python train.py", "env -i is not understood"),
        ('python "train.py', "is no command: No closing quotation"),
        ("accelerate config", "accelerate config starts no script"),
        ("A=1", "runs no script"),
        ("uv run", "uv run starts no Python script"),
        ("bash empty.sh", "bash empty.sh started no Python process and ended with exit status 3 .it said: done"),
        ("bash missing.sh", "started no Python process and ended with exit status 127"),
    ],
)
def test_a_command_that_ends_in_no_script_is_one_line(command: str, said: str, here: Path) -> None:
    (here / "empty.sh").write_text("echo done >&2; exit 3")
    with pytest.raises(WorkloadError, match=said):
        found(command)


def test_a_shell_script_runs_until_it_would_start_python(here: Path) -> None:
    (here / "run.sh").write_text(
        """#!/bin/bash
set -e
NNODES=$(python -c "print(2)")
rm -rf pkg
cd "$(dirname "$0")" && export EPOCHS=3
torchrun --nproc_per_node=${NGPU:-4} --nnodes=$NNODES train.py --epochs $EPOCHS "$@"
touch after
"""
    )
    script = found("NGPU=8 bash run.sh --lr 1")
    assert (script.target, script.arguments) == ("train.py", ("--epochs", "3", "--lr", "1"))
    assert script.launch.ranks == 16
    given = script.launch.variables(script.launch.place(None, None))
    assert (given["EPOCHS"], given["NGPU"]) == ("3", "8")
    assert "TENSORTIDE_HANDOVER" not in given
    assert "left out: rm" in script.through
    assert (here / "pkg").exists()
    assert not (here / "after").exists()


def test_a_batch_script_is_read_up_to_the_job_step_that_starts_python(here: Path) -> None:
    (here / "job.sh").write_text(
        """#!/bin/bash
#SBATCH --nodes=2
head=$(srun --nodes=1 --ntasks=1 hostname --ip-address)
srun nvidia-smi
srun --nodes=$SLURM_NNODES torchrun --nnodes=$SLURM_NNODES --nproc_per_node=8 train.py --head "$head"
"""
    )
    script = found("SLURM_NNODES=2 bash job.sh")
    assert (script.target, script.arguments) == ("train.py", ("--head", platform.node()))
    assert (script.launch.launcher, script.launch.ranks, script.launch.per_node) == ("torchrun", 16, 8)
    assert "left out: srun" in script.through


@pytest.mark.parametrize(
    "line",
    [
        "/bin/rm -rf pkg; /usr/bin/rm -rf pkg",
        "PATH=/usr/bin:/bin rm -rf pkg; env rm -rf pkg; command rm -rf pkg",
        "find pkg -delete; find pkg -type f -exec rm {} +",
        "trap 'rm -rf pkg' EXIT",
        "python3 -m pip install nothing; python -m pip install nothing",
    ],
)
def test_a_shell_script_removes_and_installs_nothing(line: str, here: Path) -> None:
    (here / "run.sh").write_text(f"{line}\npython train.py\n")
    assert found("bash run.sh").target == "train.py"
    assert (here / "pkg" / "train.py").exists()


@pytest.mark.parametrize(
    "line",
    [
        "python train.py > log",
        "A=1 python train.py --name 'a > b' >log 2>&1",
        'nohup torchrun train.py &> "$PWD/log" &',
        "(cd . && python train.py 2> log)",
        'start() { python train.py "$@" | cat >/dev/null 2> log; }; python train.py >| log',
        "exec > log 2>&1; python train.py",
        "./inner.sh > log",
    ],
)
def test_a_log_of_an_earlier_run_stays(line: str, here: Path) -> None:
    (here / "log").write_text("earlier")
    inner = here / "inner.sh"
    inner.write_text("#!/bin/bash\npython train.py\n")
    inner.chmod(0o755)
    (here / "run.sh").write_text(f"echo x > config\npython -c 'print(7)' > value\n{line}\n")
    assert found("bash run.sh").target == "train.py"
    texts = [(here / name).read_text().strip() for name in ("log", "config", "value")]
    assert texts == ["earlier", "x", "7"]


@pytest.mark.parametrize(
    ("text", "ranks"),
    [
        ("timeout 1000 bash -c 'python train.py; touch after'", None),
        ("setsid bash -c 'python train.py; touch after'", None),
        ("nohup python train.py > log 2>&1 &", None),
        ("node=$(srun -n1 hostname); srun -n8 python train.py $node", 8),
    ],
)
def test_a_python_process_is_found_and_ended_wherever_it_runs(text: str, ranks: int | None, here: Path) -> None:
    (here / "run.sh").write_text(text)
    began = time.monotonic()
    script = found("bash run.sh")
    assert (script.target, script.launch.ranks) == ("train.py", ranks)
    assert time.monotonic() - began < 60
    time.sleep(0.5)
    assert not (here / "after").exists()


def test_a_python_that_no_path_leads_to_is_seen_too(here: Path) -> None:
    (here / "sub").mkdir()
    (here / "sub" / "go.py").write_text(SHOW)
    (here / "run.sh").write_text(f"cd sub; {sys.executable} -u go.py 1\n")
    script = found("sh run.sh")
    assert (script.interpreter, script.target, script.folder) == (sys.executable, "go.py", str(here / "sub"))
    assert not (here / "sub" / "shown.json").exists()


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        ("python train.py", True),
        ("python -m pkg.train", True),
        ("python -W ignore -u train.py", True),
        ("python -c 1", False),
        ("python -V", False),
        ("python -m pip install x", False),
        ("python /opt/bin/conda shell.posix", False),
    ],
)
def test_what_runs_in_a_shell_script_is_told_from_what_trains(words: str, answer: bool) -> None:
    assert trains(words.split()) is answer


def test_a_parent_package_finds_the_arguments_of_the_script(tmp_path: Path) -> None:
    package = tmp_path / "pkg"
    package.mkdir()
    (package / "__init__.py").write_text("import sys\nWORDS = sys.argv[1:]\n")
    (package / "train.py").write_text("import pkg\nopen('words.txt', 'w').write(' '.join(pkg.WORDS))\n")
    forked(tmp_path, "pkg.train", "--job.config", "x.toml", kind="module", options=ScriptOptions())
    assert (tmp_path / "words.txt").read_text() == "--job.config x.toml"


def test_an_option_without_a_number_counts_gpus() -> None:
    assert launched("torchrun", ["--nproc_per_node=auto"]).ranks == 0
    assert launched("torchrun", ["--nproc_per_node", "4", "--nnodes", "2"]).ranks == 8


@pytest.mark.slow
@pytest.mark.parametrize(
    "command",
    [
        "torchrun --nproc_per_node=2 train.py",
        "accelerate launch --cpu --num_processes 1 --mixed_precision bf16 train.py",
    ],
)
def test_variables_are_those_that_the_launcher_sets(command: str, here: Path) -> None:
    folder = Path(sys.executable).parent
    words = [str(folder / command.split()[0]), *command.split()[1:]]
    ran = subprocess.run(words, cwd=here, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    real = json.loads((here / "shown.json").read_text())
    script = found(" ".join(words))
    place = script.launch.place(None, int(real.get("RANK", 0)))
    given = script.launch.variables(place)
    free = ("MASTER_ADDR", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_ERROR_FILE", "TORCHELASTIC_SIGNALS_TO_HANDLE")
    assert {name: value for name, value in real.items() if name not in free} == {
        name: value for name, value in given.items() if name in real and name not in free
    }
