"""The memory plan of a model that isn't loaded: from its configuration, and headers if there."""

from contextlib import closing

import attrs
import torch

from adapters.models.decoder import CausalModel
from adapters.models.errors import ModelFileMissing
from adapters.models.loader import Asked
from adapters.models.precision import Precision
from adapters.models.registry import check_model, outline_model
from adapters.torch_device.factory import named_device
from adapters.torch_device.free_memory import free_memory
from adapters.torch_device.memory import device_memory, model_spec, step_bytes
from adapters.torch_device.precision import choose_precision, stored_dtype
from adapters.torch_device.source import ModelSource, open_source
from kernel.config import EngineConfig, plan_pools
from kernel.memory.plan import MemoryPlan

__all__ = ["ModelPlan", "plan_model"]


@attrs.frozen(kw_only=True)
class ModelPlan:
    """What an engine with a configuration would allocate."""

    plan: MemoryPlan
    num_parameters: int
    dtype: str
    state_dtype: str
    free_bytes: int | None
    """On the device now, before the weights; ``None``: nothing tells."""
    checked_weights: bool
    """Whether there were weights whose headers could be compared with the configuration."""


def plan_model(config: EngineConfig) -> ModelPlan:
    """Plan without reading a tensor and without allocating anything.

    Args:
        config: as an engine would be opened with; its device needn't be here, if
            ``memory_bytes`` or the counts are given.

    Raises:
        ModelError: there is no such model, or its configuration or headers are wrong.
        NotEnoughMemory: one turn doesn't fit, or what was asked for doesn't.
        ValidationError: a value is wrong or contradicts the model.
    """
    device = named_device(config.device)
    with open_source(config.model) as source:
        precision = choose_precision(
            config.dtype,
            device,
            state_dtype=config.state_dtype,
            stored=stored_dtype(source.config),
        )
        model, asked, checked = _outline(source, precision)
    shape, weights = model.shape, asked.num_bytes
    free = _free(device)
    step = step_bytes(
        shape,
        precision,
        rows=config.max_num_seqs,
        tokens=config.max_num_batched_tokens,
        longest=config.max_model_len or shape.max_model_len,
    )
    left = None if free is None else max(0, free - weights)
    memory = device_memory(device, left, weights, step)
    spec = model_spec(shape, precision, num_parameters=asked.num_parameters)
    return ModelPlan(
        plan=plan_pools(config, spec, memory),
        num_parameters=asked.num_parameters,
        dtype=spec.dtype,
        state_dtype=str(precision.state).removeprefix("torch."),
        free_bytes=free,
        checked_weights=checked,
    )


def _outline(source: ModelSource, precision: Precision) -> tuple[CausalModel, Asked, bool]:
    try:
        store = source.open_store()
    except ModelFileMissing:
        return *outline_model(source.config, precision), False
    with closing(store):
        return *check_model(source.config, store, precision), True


def _free(device: torch.device) -> int | None:
    if device.type == "cuda" and not torch.cuda.is_available():
        return None
    return free_memory(device)
