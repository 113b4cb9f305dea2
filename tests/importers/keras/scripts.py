"""Python run with Keras on a framework: a process has one, so each has a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]

START = """
import json, math, sys
import numpy as np
import keras
from keras import layers, ops
import tensortide
from tensortide.cost import count
from tensortide.graph import Role
"""


def run(backend: str, code: str, folder: Path) -> Any:
    """Run ``code``, whose last output is a line of JSON."""
    paths = os.pathsep.join([os.environ.get("PYTHONPATH", ""), str(ROOT / "src"), str(ROOT)])
    environment = {**os.environ, "KERAS_BACKEND": backend, "PYTHONPATH": paths, "TF_CPP_MIN_LOG_LEVEL": "3"}
    command = [sys.executable, "-W", "ignore", "-c", START + code]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, cwd=folder)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.strip().splitlines()[-1])
