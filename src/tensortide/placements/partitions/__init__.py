"""Partitioning of a graph of ops for throughput: the published node and edge files, and their max-load objective."""
