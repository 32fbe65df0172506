"""How much memory a device has left, without a dependency for it.

On Linux a process may have less than the machine: a container's control group has a limit of its
own, of which the page cache that the kernel would give back doesn't count. Elsewhere ``psutil``
is asked if it is installed.
"""

import importlib
from pathlib import Path
from typing import Any

import torch

__all__ = ["free_memory"]

_PROC, _CGROUP = Path("/proc"), Path("/sys/fs/cgroup")


def free_memory(device: torch.device, *, proc: Path = _PROC, cgroup: Path = _CGROUP) -> int | None:
    """Bytes that could be allocated now; ``None`` where nothing tells."""
    if device.type == "cuda":
        free, _total = torch.cuda.mem_get_info(device)
        # What torch's allocator keeps for itself and doesn't use is free as well.
        reserved = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return free + reserved
    if device.type != "cpu":
        return None
    known = [size for size in (_available(proc), _cgroup_left(proc, cgroup)) if size is not None]
    if known:
        return min(known)
    try:
        psutil: Any = importlib.import_module("psutil")
    except ImportError:
        return None
    return int(psutil.virtual_memory().available)


def _available(proc: Path) -> int | None:
    for line in _lines(proc / "meminfo"):
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return None


def _cgroup_left(proc: Path, root: Path) -> int | None:
    """The least that any group around this process has left."""
    left: list[int] = []
    for line in _lines(proc / "self" / "cgroup"):
        number, controllers, path = line.split(":", 2)
        unified = number == "0"
        if not unified and "memory" not in controllers.split(","):
            continue
        top = root if unified else root / "memory"
        # In a container the path is often the one outside of it; the root is its own group then.
        group = top / path.strip("/")
        for place in (group, *group.parents):
            if place == top or top in place.parents:
                left += _group_left(place, unified)
    return min(left, default=None)


def _group_left(group: Path, unified: bool) -> list[int]:
    names = ("memory.max", "memory.current") if unified else _VERSION_1
    limit, used = (_number(group / name) for name in names)
    if limit is None or used is None:
        return []
    name = "inactive_file " if unified else "total_inactive_file "
    cached = next(
        (int(line.split()[1]) for line in _lines(group / "memory.stat") if line.startswith(name)), 0
    )
    return [max(0, limit - max(0, used - cached))]


_VERSION_1 = ("memory.limit_in_bytes", "memory.usage_in_bytes")


def _number(path: Path) -> int | None:
    lines = _lines(path)
    return int(lines[0]) if lines and lines[0].isdigit() else None


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return []
