"""What an import brings along, seen in a fresh interpreter."""

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
HEAVY = {"torch", "numpy", "safetensors", "tokenizers", "transformers", "scipy", "sympy"}
LOOK = """
import json, logging, os, signal, sys, threading, time, warnings
def look():
    return repr((
        [signal.getsignal(s) for s in sorted(signal.valid_signals())],
        warnings.filters, sorted(os.environ.items()), os.getcwd(),
        logging.getLogger().handlers, logging.getLogger().level,
        sys.excepthook, sys.unraisablehook, threading.excepthook, sys.path,
        [thread.name for thread in threading.enumerate()],
    ))
before, begun = look(), time.process_time()
import {module}
print(json.dumps({{
    "modules": sorted(name.partition(".")[0] for name in sys.modules),
    "is_same": look() == before,
    "seconds": time.process_time() - begun,
}}))
"""


def imported(module: str) -> dict[str, Any]:
    """What a child process that imports one module finds."""
    child = subprocess.run(
        [sys.executable, "-W", "error", "-c", LOOK.format(module=module)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (child.returncode, child.stderr) == (0, "")
    found: dict[str, Any] = json.loads(child.stdout)
    return found


pytestmark = pytest.mark.timeout(60)


def test_importing_the_kernel_brings_no_tensor_library_and_no_adapter() -> None:
    """The engine proper, and what proves it, run where torch is not installed."""
    found = imported("kernel")

    assert "kernel" in found["modules"]
    assert (HEAVY | {"adapters", "click", "trio"}).isdisjoint(found["modules"])
    assert found["is_same"]


def test_importing_ownership_brings_attrs_and_nothing_else() -> None:
    """It is a package of its own for whoever wants the ledger alone."""
    found = imported("ownership")

    assert "ownership" in found["modules"]
    assert (HEAVY | {"kernel", "adapters", "anyio", "structlog"}).isdisjoint(found["modules"])
    assert found["is_same"]


def test_importing_the_command_is_quick() -> None:
    """``tenure --help`` must not wait for torch; processor time, since the machine may be busy."""
    begun = time.perf_counter()
    found = imported("adapters.cli")

    assert HEAVY.isdisjoint(found["modules"])
    assert found["is_same"]
    assert found["seconds"] < 3, f"{time.perf_counter() - begun:.1f} s on the wall"
