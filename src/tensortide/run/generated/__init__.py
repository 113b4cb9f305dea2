"""Plans as generated programs: straight-line Python that calls the ops of a plan and frees what it evicts."""
