"""What a model takes on a device: of slots and pages exactly, of a step's temporaries at most."""

import torch

from adapters.models.precision import Precision
from adapters.ragged.passes import PassBudget
from adapters.ragged.spec import ModelShape
from adapters.torch_device.free_memory import free_memory
from adapters.torch_device.pinned import pinnable_bytes
from kernel.memory.device import MOST_UNASKED, AskMemory, DeviceMemory
from kernel.step import ModelSpec

__all__ = ["ask_memory", "device_memory", "model_spec", "step_bytes"]

_LAYER_COPIES = 6
"""Temporaries of a layer that are alive at once, each at most as wide as its widest."""
_SCAN_COPIES = 4
_MASK_COPIES = 2
_LOGIT_COPIES = 10
"""In numbers of the compute type: what drawing sorts, its places (64 bits), and sums."""
_LOGIT_NUMBERS = (32 << 20) // 8


def model_spec(
    shape: ModelShape, precision: Precision, *, num_parameters: int, fingerprint: str = ""
) -> ModelSpec:
    """What the kernel is told of a model."""
    kv_numbers = 0 if shape.kv is None else shape.kv.token_numbers
    return ModelSpec(
        name=shape.name,
        vocab_size=shape.vocab_size,
        max_model_len=shape.max_model_len,
        eos_token_ids=shape.eos_token_ids,
        uses_slots=bool(shape.states),
        uses_pages=shape.kv is not None,
        slot_bytes=shape.slot_numbers * precision.state.itemsize,
        page_token_bytes=kv_numbers * precision.weights.itemsize,
        num_parameters=num_parameters,
        dtype=str(precision.weights).removeprefix("torch."),
        fingerprint=fingerprint,
        state_dtype=str(precision.state).removeprefix("torch."),
        slides=shape.slides,
    )


def step_bytes(
    shape: ModelShape, precision: Precision, *, rows: int, tokens: int, longest: int
) -> int:
    """Most bytes that the temporaries of a step take at once, rounded up rather than down.

    Args:
        shape: of the model.
        precision: its number types.
        rows: most of a step.
        tokens: most of a step.
        longest: most tokens of a sequence.
    """
    budget = PassBudget.of(shape)
    at_once = min(tokens, budget.tokens)
    numbers = _LAYER_COPIES * at_once * (shape.token_numbers + shape.hidden_size)
    if shape.states:
        chunks = min(budget.chunks, -(-tokens // shape.chunk_size) + rows)
        numbers += _SCAN_COPIES * chunks * shape.chunk_numbers
    if shape.kv is not None:
        numbers += 2 * longest * shape.kv.kv_heads * shape.kv.head_dim
        numbers += _MASK_COPIES * min(budget.mask_cells, at_once * longest)
    logit_rows = min(rows, max(1, _LOGIT_NUMBERS // shape.vocab_size))
    numbers += _LOGIT_COPIES * logit_rows * shape.vocab_size
    return numbers * precision.compute.itemsize


def ask_memory(
    shape: ModelShape, precision: Precision, device: torch.device, weights_bytes: int
) -> AskMemory:
    """How the kernel learns what there is, once the weights are on the device."""

    def ask(rows: int, tokens: int, longest: int) -> DeviceMemory:
        step = step_bytes(shape, precision, rows=rows, tokens=tokens, longest=longest)
        return device_memory(device, free_memory(device), weights_bytes, step)

    return ask


def device_memory(
    device: torch.device, free: int | None, weights_bytes: int, step: int
) -> DeviceMemory:
    """What a plan starts from; a processor's memory is shared with all else that it runs.

    Args:
        device: which may be one of another machine.
        free: bytes on it, without the weights; ``None``: nothing tells, and of its host neither.
        weights_bytes: of the model.
        step: most bytes of a step's temporaries.
    """
    is_host = device.type == "cpu"
    host_free = free if is_host or free is None else _pinnable(free_memory(torch.device("cpu")))
    return DeviceMemory(
        host_free_bytes=host_free,
        is_host=is_host,
        free_bytes=free,
        weights_bytes=weights_bytes,
        step_bytes=step,
        unasked_share=0.125 if device.type == "cpu" else MOST_UNASKED,
    )


def _pinnable(host_free: int | None) -> int | None:
    return None if host_free is None else pinnable_bytes(host_free)
