"""Weights of a hybrid model: made up, saved, and loaded with every tensor checked by name."""

from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from adapters.models.config_reader import CONFIG_FILE
from adapters.models.errors import (
    DamagedWeights,
    MisshapenTensor,
    MissingTensor,
    ModelFileMissing,
)
from adapters.models.hybrid import HybridConfig, parameter_shapes

__all__ = ["check_weights", "load_weights", "random_weights", "save_model"]

WEIGHTS_FILE = "model.safetensors"


def random_weights(config: HybridConfig, seed: int, dtype: torch.dtype) -> dict[str, Tensor]:
    """Weights to start training from, or to test with; a function of its arguments alone."""
    draw = torch.Generator().manual_seed(seed)
    depth = (2 * config.num_layers) ** -0.5
    return {
        name: _initial(name, shape, depth, draw).to(dtype)
        for name, shape in parameter_shapes(config).items()
    }


def _initial(name: str, shape: tuple[int, ...], depth: float, draw: torch.Generator) -> Tensor:
    kind = name.split(".", 2)[-1]
    if kind.endswith(("norm.weight", "mixer.D")) or name == "final_norm.weight":
        return torch.ones(shape, dtype=torch.float64)
    uniform = torch.rand(shape, generator=draw, dtype=torch.float64)
    if kind == "mixer.A_log":
        return (1 + 15 * uniform).log()
    if kind == "mixer.dt_bias":
        # softplus of it is between 0.001 and 0.1, evenly in the logarithm
        step = torch.exp(uniform * 4.605 - 6.908)
        return step + torch.log(-torch.expm1(-step))
    if kind.startswith("mixer.conv1d"):
        return (2 * uniform - 1) / 2
    normal = torch.randn(shape, generator=draw, dtype=torch.float64)
    if name in ("embed.weight", "lm_head.weight"):
        return normal * 0.02
    scale = depth if kind.endswith(("out_proj.weight", "o_proj.weight", "down_proj.weight")) else 1
    return normal.mul(scale * shape[-1] ** -0.5)


def save_model(directory: Path, config: HybridConfig, weights: Mapping[str, Tensor]) -> None:
    """Write config.json and model.safetensors; the tokenizer's file is the caller's."""
    check_weights(config, weights)
    directory.mkdir(parents=True, exist_ok=True)
    (directory / CONFIG_FILE).write_text(config.to_json(), encoding="utf-8")
    tensors = {name: weights[name].detach().contiguous() for name in parameter_shapes(config)}
    # Replaced whole: a reader sees the old file or the new one, never half of one.
    partial = directory / (WEIGHTS_FILE + ".new")
    partial.write_bytes(save(tensors, metadata={"format": "pt"}))
    partial.replace(directory / WEIGHTS_FILE)


def load_weights(
    directory: Path, config: HybridConfig | None = None, *, dtype: torch.dtype | None = None
) -> tuple[HybridConfig, dict[str, Tensor]]:
    """Configuration and weights of a model directory, in ``dtype`` or as they are stored.

    Raises:
        ModelFileMissing: the directory lacks config.json or model.safetensors.
        ConfigError: config.json isn't one of this family.
        DamagedWeights: the file is cut short or isn't safetensors.
        MissingTensor, MisshapenTensor: names the tensor.
    """
    config = config or HybridConfig.load(directory)
    stored = _read(directory)
    check_weights(config, stored)
    wanted = parameter_shapes(config)
    return config, {name: stored[name].to(dtype or stored[name].dtype) for name in wanted}


def _read(directory: Path) -> dict[str, Tensor]:
    path = directory / WEIGHTS_FILE
    if not path.is_file():
        raise ModelFileMissing(f"{directory} is no model: it has no {WEIGHTS_FILE}")
    try:
        return load(path.read_bytes())
    except (SafetensorError, OSError, KeyError, ValueError) as error:
        raise DamagedWeights(f"{path} can't be read, copy it again: {error}") from error


def check_weights(config: HybridConfig, weights: Mapping[str, Tensor]) -> None:
    """Refuse weights that lack a tensor or have one of another shape or type; extras are legal."""
    for name, shape in parameter_shapes(config).items():
        tensor = weights.get(name)
        if tensor is None:
            raise MissingTensor(f"the weights lack {name} {list(shape)}")
        if tuple(tensor.shape) != shape:
            raise MisshapenTensor(f"{name} is {list(tensor.shape)}, not {list(shape)}")
        if not tensor.is_floating_point():
            raise MisshapenTensor(f"{name} holds {tensor.dtype}, not floating-point numbers")
