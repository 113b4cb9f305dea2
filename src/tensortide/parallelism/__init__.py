"""One training step on many devices: closed forms, schedules of pipelines, graphs of one rank."""
