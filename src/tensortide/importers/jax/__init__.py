"""Importer of JAX: any function and its arguments, traced to a jaxpr, as a Graph of ops ``jax.<primitive>``."""
