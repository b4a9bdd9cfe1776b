"""Log lines. CUDAFORGE_LOG=forge,graph,cache,dispatch writes them to stderr; Python's logging has
them in the loggers "cudaforge.forge" and so on."""

from __future__ import annotations

import logging

from ._native import _C

_LOGGERS = {topic: logging.getLogger(f"cudaforge.{topic}") for topic in _C.LOG_TOPICS}

forge = _LOGGERS["forge"]
graph = _LOGGERS["graph"]
cache = _LOGGERS["cache"]
dispatch = _LOGGERS["dispatch"]


def install() -> None:
    """Writes the topics of CUDAFORGE_LOG to stderr. Called once, when the package loads."""
    asked = set(_C.config()["log"])
    for topic, logger in _LOGGERS.items():
        if not asked & {topic, "all"}:
            continue
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(asctime)s %(name)s: %(message)s"))
        logger.addHandler(handler)
        logger.setLevel(logging.DEBUG)
        logger.propagate = False  # one line each, whatever the program does with the root logger
