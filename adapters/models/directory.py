"""A model directory as Hugging Face lays it out: which files are there, and what opens them.

``config.json``; ``model.safetensors``, or ``model.safetensors.index.json`` with the shards that
it names; ``tokenizer.json``; and, where the model has them, ``generation_config.json`` and a chat
template. Nothing is downloaded, and no pickle is ever opened.
"""

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import cast

from adapters.models.config_reader import ConfigReader
from adapters.models.errors import (
    DamagedWeights,
    MissingTensor,
    ModelFileMissing,
    ModelNotFound,
    ShardMissing,
    UnsafeWeights,
    UnsupportedQuantization,
)
from adapters.models.safetensors_store import SafetensorsStore

__all__ = [
    "BUNDLED",
    "CHAT_TEMPLATE_FILE",
    "GENERATION_FILE",
    "INDEX_FILE",
    "TOKENIZER_CONFIG_FILE",
    "TOKENIZER_FILE",
    "WEIGHTS_FILE",
    "model_path",
    "open_store",
    "refuse_quantized",
]

BUNDLED = "bundled"
"""The name of the model in the package."""
WEIGHTS_FILE = "model.safetensors"
INDEX_FILE = "model.safetensors.index.json"
GENERATION_FILE = "generation_config.json"
TOKENIZER_FILE = "tokenizer.json"
TOKENIZER_CONFIG_FILE = "tokenizer_config.json"
CHAT_TEMPLATE_FILE = "chat_template.jinja"

_PICKLES = ("pytorch_model*.bin", "*.pt", "*.pth", "*.ckpt")
_HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")
_SHOWN = 3


def model_path(model: str, *, files: tuple[str, ...] = ()) -> Path:
    """Where a model lies: the one in the package, a directory, or a file of a known kind.

    Args:
        model: as in ``EngineConfig``.
        files: endings of the names of files that are models by themselves (``".gguf"``).

    Raises:
        ModelNotFound: neither of them; says what to do for a file, a hub id or a typo.
    """
    if model == BUNDLED:
        return Path(__file__).parent / BUNDLED
    wanted = (
        f"name {BUNDLED!r}, a directory with config.json, {WEIGHTS_FILE} and {TOKENIZER_FILE},"
        " or a GGUF file"
    )
    try:
        path = Path(model).expanduser()
        is_directory, is_file = path.is_dir(), path.is_file()
    except (OSError, RuntimeError) as error:  # too long a name, or the home of nobody
        raise ModelNotFound(f"model {model!r:.200} is no path ({error}): {wanted}") from error
    if is_directory or (is_file and path.name.endswith(files)):
        return path
    if is_file:
        raise ModelNotFound(f"model {model!r} is a file: {wanted}")
    if _HUB_ID.fullmatch(model):
        raise ModelNotFound(
            f"model {model!r} is no directory here, and nothing is downloaded: if it is a model of"
            f" the Hugging Face hub, run `hf download {model} --local-dir DIR` and name DIR"
        )
    raise ModelNotFound(f"model {model!r} is neither in the package nor on disk: {wanted}")


def refuse_quantized(config: ConfigReader) -> None:
    """Refuse weights that are quantised in the way of some other library.

    Raises:
        UnsupportedQuantization: names the method (fp8, bitsandbytes, gptq, awq, ...).
    """
    for part in (config, config.sub("text_config")):
        for key in ("quantization_config", "compression_config"):
            if part.has(key):
                method = part.sub(key).values.get("quant_method", "an unnamed method")
                raise UnsupportedQuantization(
                    f"{part.where}: {key} says that the weights are quantised by {method!r}, which"
                    " isn't read; use the model's weights in bfloat16, or a GGUF file of it"
                )


def open_store(directory: Path) -> SafetensorsStore:
    """Open the weights of a directory, headers only; the caller closes the store.

    Raises:
        ModelFileMissing: there are no weights.
        UnsafeWeights: there are pickles only.
        ShardMissing: the index names a file that isn't there.
        MissingTensor: the index names a tensor in a file that lacks it.
        DamagedWeights, AmbiguousTensor: as :class:`SafetensorsStore`.
    """
    # In this order, as transformers: whoever joins the shards often leaves the index behind.
    if (directory / WEIGHTS_FILE).is_file():
        return SafetensorsStore([directory / WEIGHTS_FILE])
    if (directory / INDEX_FILE).is_file():
        return _open_shards(directory, _weight_map(directory / INDEX_FILE))
    pickles = sorted(path.name for pattern in _PICKLES for path in directory.glob(pattern))
    if pickles:
        raise UnsafeWeights(
            f"{directory} has its weights in {_some(pickles)} only: pickles run code when they are"
            " read and aren't opened; convert them with transformers: model.save_pretrained(DIR)"
        )
    raise ModelFileMissing(f"{directory} is no model: it has no {WEIGHTS_FILE}, nor {INDEX_FILE}")


def _weight_map(path: Path) -> Mapping[str, str]:
    try:
        index: object = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise DamagedWeights(f"{path} isn't JSON, download it again: {error}") from error
    found = cast("dict[str, object]", index).get("weight_map") if isinstance(index, dict) else None
    if not isinstance(found, dict) or not found:
        raise DamagedWeights(f"{path} has no weight_map with the file of each tensor")
    for name, file in cast("dict[str, object]", found).items():
        # A bare name: an index must not lead out of its directory.
        if not isinstance(file, str) or file in ("", ".", "..") or Path(file).name != file:
            raise DamagedWeights(f"{path}: {name} is in {file!r}, which isn't the name of a file")
    return cast("dict[str, str]", found)


def _open_shards(directory: Path, weight_map: Mapping[str, str]) -> SafetensorsStore:
    files = sorted(set(weight_map.values()))
    missing = [file for file in files if not (directory / file).is_file()]
    if missing:
        raise ShardMissing(
            f"{directory} lacks {_some(missing)} of the {len(files)} files that {INDEX_FILE} names;"
            " download them"
        )
    store = SafetensorsStore([directory / file for file in files])
    try:
        for name, file in weight_map.items():
            if name not in store.tensors or store.file_of(name).name != file:
                raise MissingTensor(
                    f"{INDEX_FILE} says that {name} is in {file}, which lacks it; download both"
                    " again"
                )
    except BaseException:
        store.close()
        raise
    return store


def _some(names: Iterable[str]) -> str:
    names = list(names)
    rest = len(names) - _SHOWN
    return ", ".join(names[:_SHOWN]) + (f" and {rest} more" if rest > 0 else "")
