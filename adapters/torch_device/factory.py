"""Open a model on a torch device: the entry points "cpu" and "cuda"."""

from contextlib import closing

import torch

from adapters.models.errors import TokenizerMismatch
from adapters.models.generation_config import NO_DEFAULTS
from adapters.models.loader import Asked
from adapters.models.registry import load_model
from adapters.ragged.spec import ModelShape
from adapters.structured import LibraryCompiler
from adapters.torch_device.device import TorchDevice
from adapters.torch_device.free_memory import free_memory
from adapters.torch_device.memory import ask_memory
from adapters.torch_device.precision import choose_precision, stored_dtype
from adapters.torch_device.source import ModelSource, open_source
from kernel.errors import NotEnoughMemory, ValidationError
from kernel.loading import OnProgress, no_progress
from kernel.memory.byte_sizes import format_bytes
from kernel.step import OpenedDevice

__all__ = ["named_device", "open_torch"]


def open_torch(
    *,
    model: str,
    device: str,
    dtype: str,
    state_dtype: str = "auto",
    progress: OnProgress = no_progress,
) -> OpenedDevice:
    """Load a model and its tokenizer; no arena is allocated yet.

    What can be wrong is looked for from the cheap to the dear: the configuration, the tokenizer,
    the weights' headers, the room for them, and only then the weights themselves.

    Raises:
        ModelError: the directory, its configuration, weights or tokenizer are missing or damaged.
        NotEnoughMemory: the weights are larger than what is free.
        ValidationError: no such device here, or no such dtype.
    """
    where = _usable(device)
    choose_precision(dtype, where, state_dtype=state_dtype)  # a wrong name, before any file
    with open_source(model) as source:
        return _open(source, where, dtype, state_dtype, progress)


def _open(
    source: ModelSource, where: torch.device, dtype: str, state_dtype: str, progress: OnProgress
) -> OpenedDevice:
    config, path = source.config, source.path
    stored = stored_dtype(config)
    precision = choose_precision(dtype, where, state_dtype=state_dtype, stored=stored)
    text = source.open_text()
    tokenizer = text.tokenizer
    generation = NO_DEFAULTS

    def checked(shape: ModelShape, asked: Asked) -> None:
        nonlocal generation
        if tokenizer.vocab_size > shape.vocab_size:
            raise TokenizerMismatch(
                f"{path}: the tokenizer has {tokenizer.vocab_size} ids, the model only"
                f" {shape.vocab_size}; they don't belong together"
            )
        generation = source.read_generation(shape.vocab_size)
        generation = generation.with_ends(*text.eos_token_ids)
        _check_room(asked.num_bytes, where)

    with closing(source.open_store()) as store:
        built, asked = load_model(
            config,
            store,
            precision,
            where,
            progress=progress,
            with_fingerprint=True,
            checked=checked,
        )
    opened = TorchDevice(
        built,
        precision,
        num_parameters=asked.num_parameters,
        device=where,
        fingerprint=asked.fingerprint,
        generation=generation,
    )
    return OpenedDevice(
        device=opened,
        tokenizer=tokenizer,
        constraints=LibraryCompiler(tokenizer.to_json, opened.model.eos_token_ids),
        chat=text.chat,
        opening_ids=text.opening_ids,
        memory=ask_memory(built.shape, precision, where, asked.num_bytes),
    )


def _check_room(needed: int, device: torch.device) -> None:
    free = free_memory(device)
    if free is not None and needed > free:
        raise NotEnoughMemory(
            needed_bytes=needed,
            available_bytes=free,
            why=(
                f"the weights take {format_bytes(needed)} and {format_bytes(free)} are free on"
                f" {device}; use a smaller model or a dtype of 16 bits"
            ),
        )


def named_device(name: str) -> torch.device:
    """A device by its name, whether it is here or not.

    Raises:
        ValidationError: there are no such devices.
    """
    try:
        return torch.device(name)
    except RuntimeError as error:
        raise ValidationError(parameter="device", value=name, why=str(error)) from error


def _usable(name: str) -> torch.device:
    device = named_device(name)
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ValidationError(
            parameter="device", value=name, why="torch finds no CUDA device here; use 'cpu'"
        )
    return device
