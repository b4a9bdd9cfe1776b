"""Compiles one Triton kernel that a language model wrote to PTX, ahead of time and without a GPU.

A program of its own: `python -I triton_aot`, one JSON object on stdin, one on stdout; see `Request`
and `compile_kernel` for their fields. It imports nothing of the package that contains it.

The source is hostile. Triton executes a part of a kernel as Python while it compiles: names,
attributes and calls of plain objects. Three barriers protect against that:
1. Every node of the syntax tree must be on a list of what kernels need (check.py, allowed.py).
2. Only the checked function definitions are executed, without builtins. Triton parses the text
   itself, and must get the same tree (`_define` in compilation.py).
3. All of it happens in a child process with limits, in a folder that is removed (program.py).
"""
