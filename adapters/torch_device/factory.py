"""Open a model directory on a torch device: the entry points "cpu" and "cuda"."""

from pathlib import Path

import torch

from adapters.models.config_reader import ConfigReader
from adapters.models.registry import load_model
from adapters.models.weights import open_weights
from adapters.tokenizers import HubTokenizer
from adapters.torch_device.device import TorchDevice
from adapters.torch_device.precision import choose_precision
from kernel.errors import ModelError, ValidationError
from kernel.step import OpenedDevice

__all__ = ["model_directory", "open_torch"]

BUNDLED = "bundled"
_TOKENIZER_FILE = "tokenizer.json"


def model_directory(model: str) -> Path:
    """Where a model lies: the one in the package, or a directory on disk."""
    if model == BUNDLED:
        return Path(__file__).parents[1] / "models" / BUNDLED
    directory = Path(model).expanduser()
    if not directory.is_dir():
        raise ModelError(
            f"model {model!r} is neither {BUNDLED!r} nor a directory; name a directory with"
            " config.json, model.safetensors and tokenizer.json"
        )
    return directory


def open_torch(*, model: str, device: str, dtype: str) -> OpenedDevice:
    """Load a model and its tokenizer; no arena is allocated yet.

    Raises:
        ModelError: the directory, its configuration, weights or tokenizer are missing or damaged.
        ValidationError: no such device here, or no such dtype.
    """
    where = _usable(device)
    precision = choose_precision(dtype, where)
    directory = model_directory(model)
    config = ConfigReader.load(directory)
    built, asked = load_model(config, open_weights(directory), precision, where)
    tokenizer = HubTokenizer.load(directory / _TOKENIZER_FILE)
    if tokenizer.vocab_size > built.shape.vocab_size:
        raise ModelError(
            f"{directory}: the tokenizer has {tokenizer.vocab_size} ids, the model only"
            f" {built.shape.vocab_size}; they don't belong together"
        )
    return OpenedDevice(
        device=TorchDevice(built, precision, num_parameters=asked.num_parameters, device=where),
        tokenizer=tokenizer,
    )


def _usable(name: str) -> torch.device:
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise ValidationError(parameter="device", value=name, why=str(error)) from error
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ValidationError(
            parameter="device", value=name, why="torch finds no CUDA device here; use 'cpu'"
        )
    return device
