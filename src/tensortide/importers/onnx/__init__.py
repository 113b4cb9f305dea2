"""Importer of ONNX models."""
