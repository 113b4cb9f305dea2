"""Files of Python that run a step in less memory with unmodified PyTorch."""

from __future__ import annotations

from tensortide.studies.torch_file.making import Asked, Form, TorchFile, make, torch_file

__all__ = ["Asked", "Form", "TorchFile", "make", "torch_file"]
