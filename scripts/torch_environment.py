"""Make an environment with one version of PyTorch, for ``make test-torch VERSION=...``.

    python scripts/torch_environment.py 2.6.0     makes .venv-torch-2.6.0 if it is not there

The wheel that pip chooses is installed without the CUDA packages that it may ask for: they take gigabytes, and nothing
here runs on a GPU. The shared libraries missing then are replaced by stubs, whose functions return an error.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

TOOLS = ("pytest>=9,<10", "hypothesis>=6.130", "numba>=0.65", "matplotlib>=3.9", "setuptools", "ninja")
NO_DEVICE = 100
"""``cudaErrorNoDevice``."""
_VENDOR = re.compile(r"^(__)?(cu[a-z]*[A-Z]|cuda|cudnn|nccl|nvtx|nvrtc|nvshmem|cusparseLt)\w+$")
_GPU_PACKAGE = re.compile(r"^(nvidia|cuda|triton)")


def main(version: str) -> None:
    """Make the environment, or leave it as it is if it is complete."""
    home = Path(f".venv-torch-{version}")
    python, done = home / "bin/python", home / ".installed"
    if done.exists():
        return
    run(sys.executable, "-m", "venv", "--clear", "--without-pip", str(home))
    pip = (sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet")
    run(*pip, "--no-deps", f"torch=={version}")
    required = ask(python, "import importlib.metadata as m; print(*m.requires('torch'), sep='\\n')").splitlines()
    run(*pip, *(line for line in required if "extra ==" not in line and not _GPU_PACKAGE.match(line)))
    run(*pip, "-e", ".", *TOOLS)
    stub(Path(ask(python, "import importlib.util as u; print(u.find_spec('torch').submodule_search_locations[0])")))
    print(f"PyTorch {ask(python, 'import torch; print(torch.__version__)')} in {home}")
    done.touch()


def run(*command: str) -> None:
    """Run a command that must succeed."""
    print("+", *command, flush=True)
    subprocess.run(command, check=True)


def ask(python: Path, code: str) -> str:
    """The line that ``code`` prints."""
    return subprocess.run((python, "-c", code), check=True, capture_output=True, text=True).stdout.strip()


def stub(torch: Path) -> None:
    """Write a stub for every library that those of ``torch`` need and the system does not have."""
    folder = torch / "lib"
    given = sorted(folder.glob("*.so*"))
    heads = {file: tool("objdump", "-p", file) for file in given}
    needed = {name for head in heads.values() for name in re.findall(r"NEEDED\s+(\S+)", head)}
    installed = set(re.findall(r"^\s+(\S+) ", tool("ldconfig", "-p"), re.MULTILINE))
    missing = needed - installed - {file.name for file in given}
    symbols: defaultdict[str, defaultdict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    unversioned: set[str] = set()
    for file, head in heads.items() if missing else ():
        library_of: dict[str, str] = {}
        for library, versions in re.findall(r"required from (\S+):\n((?:    .*\n)*)", head):
            library_of |= {line.split()[-1]: library for line in versions.splitlines()}
        for line in tool("nm", "-D", "--undefined-only", file).splitlines():
            name, _, version = line.split()[-1].partition("@")
            if version:
                symbols[library_of.get(version, "")][version].add(name)
            elif _VENDOR.match(name):
                unversioned.add(name)
    for library in missing:
        build_stub(folder / library, symbols[library] or {"": unversioned})
    print(f"stubs for {', '.join(sorted(missing)) or 'nothing'}")


def build_stub(library: Path, symbols: Mapping[str, set[str]]) -> None:
    """Build ``library`` with functions of the names in ``symbols``, by version."""
    script = library.with_suffix(".map")
    script.write_text("".join(f"{version} {{ global: {'; '.join(names)}; }};\n" for version, names in symbols.items()))
    source = "".join(f"int {name}(void) {{ return {NO_DEVICE}; }}\n" for name in set().union(*symbols.values()))
    build = ("gcc", "-shared", "-w", "-fno-builtin", f"-Wl,-soname,{library.name},--version-script,{script}")
    subprocess.run((*build, "-x", "c", "-", "-o", library), input=source, text=True, check=True)
    script.unlink()


def tool(*command: str | Path) -> str:
    """The output of a command."""
    environment = {**os.environ, "PATH": os.environ.get("PATH", "") + ":/sbin:/usr/sbin"}
    return subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout


if __name__ == "__main__":
    main(*sys.argv[1:])
