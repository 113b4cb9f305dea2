"""Times of layers on devices: the published model, and the corrected one."""
