"""The compiled simulator of placed steps, alone in its folder: its machine code is kept until a file here, in
``play`` or in ``placements.annealing`` changes."""
