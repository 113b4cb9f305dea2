"""The compiled simulator of placed steps, alone in its folder: machine code is kept until a file here changes."""
