"""Finding the device that a configuration names, and the probe that it asks for."""

import os
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import structlog

from kernel.config import EngineConfig
from kernel.environment import Environment
from kernel.errors import ValidationError
from kernel.loading import OnProgress, no_progress
from kernel.probe import EventProbe, NullProbe, Probe
from kernel.session_store import FileHeader, SessionFiles, StoreWorker
from kernel.step import DeviceFactory, ModelSpec, OpenedDevice

__all__ = [
    "DEVICES",
    "SESSION_FILES",
    "file_header",
    "find_session_files",
    "make_probe",
    "open_device",
    "open_store",
]

DEVICES = "tenure.devices"
"""Entry-point group in which devices are found by name."""
SESSION_FILES = "tenure.session_files"
"""Entry-point group in which is found what writes sessions to disk."""


def open_device(config: EngineConfig, progress: OnProgress = no_progress) -> OpenedDevice:
    """Open the device that ``config.device`` names. Blocks while the model is loaded.

    Args:
        config: names device, model and number types.
        progress: told how far the loading is, on this thread.

    Raises:
        ValidationError: no such device is installed.
        ModelError: the model can't be opened.
    """
    found = entry_points(group=DEVICES, name=config.device)
    if not found:
        known = ", ".join(sorted(entry.name for entry in entry_points(group=DEVICES)))
        raise ValidationError(
            parameter="device", value=config.device, why=f"no such device is installed; use {known}"
        )
    factory: DeviceFactory = next(iter(found)).load()
    return factory(
        model=config.model,
        device=config.device,
        dtype=config.dtype,
        state_dtype=config.state_dtype,
        progress=progress,
    )


def find_session_files() -> SessionFiles:
    """What writes and reads sessions here; loaded when it is first asked for.

    Raises:
        ValidationError: nothing of the kind is installed.
    """
    found = sorted(entry_points(group=SESSION_FILES), key=lambda entry: entry.name)
    if not found:
        why = f"nothing is installed that keeps sessions (entry points {SESSION_FILES!r})"
        raise ValidationError(parameter="session_store", value="on disk", why=why)
    files: SessionFiles = found[0].load()
    return files


def file_header(model: ModelSpec) -> FileHeader:
    """Whose states an engine's are."""
    return FileHeader(model.name, model.fingerprint, model.dtype, model.state_dtype)


def open_store(
    config: EngineConfig, model: ModelSpec, files: SessionFiles | None
) -> StoreWorker | None:
    """Open the store that ``config.session_store`` names, if it names one. Blocks.

    Args:
        config: names it.
        model: whose sessions are in it.
        files: ``None``: what is installed.

    Raises:
        ValidationError: nothing is installed that could open it.
        SessionStoreError: it is another model's, damaged, in use, or can't be made.
    """
    if config.session_store is None:
        return None
    return (files or find_session_files()).open_store(
        Path(config.session_store),
        file_header(model),
        sync=config.session_store_sync,
        max_state_bytes=config.session_store_bytes,
    )


def make_probe(config: EngineConfig, logger: Any, environment: Environment) -> Probe:
    """A probe on the caller's logger, on the application's structlog, or on nothing."""
    if logger is None and not config.log_events:
        return NullProbe()
    if logger is None:
        logger = structlog.get_logger("tenure")
    return EventProbe(logger, engine=f"engine-{os.urandom(4).hex()}", clock=environment.clock)
