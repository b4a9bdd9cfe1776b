"""Compiles one Triton kernel that a language model wrote to PTX, ahead of time and without a GPU.

A program of its own: `python -I triton_aot`, one JSON object on stdin, one on stdout; see `Request`
and `compile_kernel` for their fields. It imports nothing of the package in which it lies.

The source is hostile. Triton executes a part of a kernel as Python while it compiles: names,
attributes and calls of plain objects. Three walls stand against that. Every node of the syntax
tree must be on a list of what kernels need (check.py, allowed.py). Nothing but the checked function
definitions is executed, without builtins, and what Triton parses again must be the same tree
(`_define` in compilation.py). And it all happens in a child process with limits, in a folder that
is removed (program.py).
"""
