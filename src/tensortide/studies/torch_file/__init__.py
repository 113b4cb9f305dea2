"""Files of Python that run a step in less memory with unmodified PyTorch."""

from __future__ import annotations

from tensortide.studies.torch_file.making import make, torch_file
from tensortide.studies.torch_file.result import Asked, Form, TorchFile

__all__ = ["Asked", "Form", "TorchFile", "make", "torch_file"]
