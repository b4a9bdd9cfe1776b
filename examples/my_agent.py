#!/usr/bin/env python3
"""A Coder that answers with a kernel from a file: cudaforge forge KEY --coder
"command:examples/my_agent.py KERNEL.txt". Put a language model where the file is read."""

import json
import sys
from pathlib import Path


def answer(messages: list[dict[str, str]], limits: dict[str, float]) -> str:
    """The reply to a conversation, within limits["max_output_tokens"] and "total_seconds".
    messages[0], the system's, states the form that it must have."""
    return Path(sys.argv[1]).read_text()


request = json.load(sys.stdin)  # {"role": "coder" or "judge", "messages": [...], "limits": {...}}
content = answer(request["messages"], request["limits"])
usage = {"input_tokens": 1, "output_tokens": 1}  # as a service counted them; left out: estimated
print(json.dumps({"content": content, "usage": usage}))
