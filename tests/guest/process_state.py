"""What other code in the process could notice of us, in one comparable value."""

import asyncio
import gc
import locale
import logging
import os
import random
import signal
import sys
import threading
import warnings
from collections.abc import Callable
from typing import TypeVar

import numpy as np
import structlog
import torch

__all__ = ["loop_state", "process_state", "threads_of_ours"]

T = TypeVar("T")

_OF_THE_LOOPS = ("Trio thread", "AnyIO worker thread", "asyncio_")
"""Names of threads that event loops keep for their own use."""


def process_state() -> dict[str, object]:
    """Process-wide settings by name; every value compares by content."""
    return _torch_state() | _interpreter_state() | _logging_state() | _random_state()


def loop_state() -> dict[str, object]:
    """Settings of the running event loop."""
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        return {"asyncgen hooks": sys.get_asyncgen_hooks()}
    return {
        "asyncgen hooks": sys.get_asyncgen_hooks(),
        "exception handler": loop.get_exception_handler(),
        "task factory": loop.get_task_factory(),
        "debug": loop.get_debug(),
    }


def threads_of_ours() -> set[str]:
    """Names of the threads that run, those of event loops aside."""
    names = {thread.name for thread in threading.enumerate()}
    return {name for name in names if not name.startswith(_OF_THE_LOOPS)}


def _torch_state() -> dict[str, object]:
    return {
        "torch threads": torch.get_num_threads(),
        "torch threads of a new thread": _in_new_thread(torch.get_num_threads),
        "torch interop threads": torch.get_num_interop_threads(),
        "torch dtype": torch.get_default_dtype(),
        "torch device": torch.get_default_device(),
        "torch grad": torch.is_grad_enabled(),
        "torch inference mode": torch.is_inference_mode_enabled(),
        "torch deterministic": torch.are_deterministic_algorithms_enabled(),
        "torch precision": torch.get_float32_matmul_precision(),
        "torch keeps denormals": bool((torch.full((4,), 1e-39) * 0.5).any()),
    }


def _random_state() -> dict[str, object]:
    return {
        "torch generator": bytes(torch.random.get_rng_state().numpy()),
        "random": random.getstate(),
        "numpy": repr(np.random.get_state(legacy=False)),
    }


def _interpreter_state() -> dict[str, object]:
    return {
        "signals": {number: signal.getsignal(number) for number in signal.valid_signals()},
        "warning filters": list(warnings.filters),
        "showwarning": warnings.showwarning,
        "environment": dict(os.environ),
        "directory": os.getcwd(),
        "locale": locale.setlocale(locale.LC_ALL),
        "hooks": (sys.excepthook, sys.unraisablehook, sys.displayhook, threading.excepthook),
        "tracing": (sys.gettrace(), sys.getprofile()),
        "limits": (sys.getrecursionlimit(), sys.getswitchinterval()),
        "collector": (gc.isenabled(), gc.get_threshold(), list(gc.callbacks)),
        "import path": (list(sys.path), list(sys.meta_path)),
    }


def _logging_state() -> dict[str, object]:
    root = logging.getLogger()
    loggers = {
        name: (logger.level, list(logger.handlers), logger.propagate, logger.disabled)
        for name, logger in sorted(logging.root.manager.loggerDict.items())
        if isinstance(logger, logging.Logger)
    }
    return {
        "root logger": (root.level, list(root.handlers), list(root.filters), root.manager.disable),
        "logger class": logging.getLoggerClass(),
        "loggers": loggers,
        "structlog": (structlog.is_configured(), structlog.get_config()),
        "structlog contextvars": structlog.contextvars.get_contextvars(),
    }


def _in_new_thread(work: Callable[[], T]) -> T:
    results: list[T] = []
    thread = threading.Thread(target=lambda: results.append(work()))
    thread.start()
    thread.join()
    return results[0]
