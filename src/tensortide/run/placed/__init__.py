"""Plans of several lanes run for real: one process per lane, values sent between them."""
