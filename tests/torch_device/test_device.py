"""The device as the kernel sees it: opened from a directory, stepped by a worker."""

import json
import queue
from pathlib import Path

import attrs
import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from adapters.models.reference import reference_logits
from adapters.models.weights import random_weights, save_model
from adapters.text.tokenizer import HubTokenizer
from adapters.torch_device import TorchDevice, open_torch
from adapters.torch_device.precision import choose_precision
from kernel.errors import ModelError, ValidationError
from kernel.step import (
    Device,
    DeviceLimits,
    DeviceStep,
    DeviceWorker,
    InitialState,
    RowOutcome,
    StepDone,
    StepReport,
    StepRow,
    WorkerContext,
)
from ownership import PageIndex, SlotIndex
from tests.torch_device.support import CONFIGS, GREEDY

CONFIG = attrs.evolve(CONFIGS["hybrid"], vocab_size=300, eos_token_ids=(7,))
LIMITS = DeviceLimits(num_slots=2, num_pages=8, page_size=8, max_rows=2, max_step_tokens=64)
CONTEXT = WorkerContext(call_later=lambda delay, call: None)


def library_tokenizer(vocabulary: int = 290) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=["<|end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(["the cat sat on the mat, the cat ran"] * 9, trainer)
    return tokenizer


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model directory with everything in it."""
    directory = tmp_path_factory.mktemp("model")
    save_model(directory, CONFIG, random_weights(CONFIG, 1, torch.float32))
    library_tokenizer().save(str(directory / "tokenizer.json"))
    return directory


@pytest.fixture
def directory(whole: Path, tmp_path: Path) -> Path:
    """A copy to damage."""
    for path in whole.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    return tmp_path


def run_one(worker: DeviceWorker, step: DeviceStep) -> StepReport:
    reports: queue.SimpleQueue[StepReport] = queue.SimpleQueue()
    worker.submit(step, reports.put)
    return reports.get(timeout=10)


def test_an_opened_model_generates_what_the_reference_would(whole: Path) -> None:
    opened = open_torch(model=str(whole), device="cpu", dtype="float64")
    device: Device = opened.device
    device.allocate(LIMITS)
    worker = device.start_worker(CONTEXT)
    weights = random_weights(CONFIG, 1, torch.float32)
    text = opened.tokenizer.encode("the cat")
    position, tokens = 0, list(text)
    pages = [PageIndex(page) for page in (3, 1, 5)]
    for _ in range(6):
        new = tokens[position:]
        initial: InitialState = "kept" if position else "zeros"
        row = StepRow(SlotIndex(1), initial, position, new, pages, None, GREEDY)
        report = run_one(worker, DeviceStep(step=position, rows=[row]))
        assert isinstance(report, StepDone)
        assert report.compute_s > 0
        position = len(tokens)
        tokens += [token for token in report.tokens if isinstance(token, int)]
    worker.stop()
    assert worker.join(5)
    device.close()

    doubled = {name: tensor.double() for name, tensor in weights.items()}
    logits = reference_logits(CONFIG, doubled, torch.tensor([tokens[:-1]]))[0]
    right = [int(line.argmax()) for line in logits[len(text) - 1 :]]
    assert tokens[len(text) :] == right


def test_the_model_states_what_it_needs(whole: Path) -> None:
    model = open_torch(model=str(whole), device="cpu", dtype="auto").device.model

    assert (model.dtype, model.state_dtype) == ("float32", "float32")
    assert model.slides
    assert model.eos_token_ids == (7,)
    assert model.uses_slots
    assert model.uses_pages
    assert model.slot_bytes == 2 * (3 * (32 + 16) + 32 * 8) * 4
    assert model.page_token_bytes == 1 * 2 * 2 * 8 * 4
    weights = random_weights(CONFIG, 1, torch.float32)
    assert model.num_parameters == sum(tensor.numel() for tensor in weights.values())


@pytest.mark.parametrize(
    ("name", "slots", "pages"),
    [
        ("hybrid", True, True),
        ("attention-only", False, True),
        ("recurrent-only", True, False),
    ],
)
def test_a_model_without_a_kind_of_layer_needs_none_of_its_memory(
    name: str, slots: bool, pages: bool
) -> None:
    config = CONFIGS[name]
    device = TorchDevice.of_weights(config.to_dict(), random_weights(config, 1, torch.float32))

    assert (device.model.uses_slots, device.model.uses_pages) == (slots, pages)
    assert (device.model.slot_bytes > 0, device.model.page_token_bytes > 0) == (slots, pages)


def test_arenas_outlive_a_worker_and_go_with_the_device(whole: Path) -> None:
    """A successor goes on from the state that the first worker left."""
    device = open_torch(model=str(whole), device="cpu", dtype="float64").device
    device.allocate(LIMITS)
    pages = [PageIndex(0)]
    rows = [
        StepRow(SlotIndex(0), "zeros", 0, [1, 2, 3], pages, None, None),
        StepRow(SlotIndex(0), "kept", 3, [4], pages, None, GREEDY),
    ]
    drawn: list[tuple[RowOutcome, ...]] = []
    for row in rows:
        worker = device.start_worker(CONTEXT)
        report = run_one(worker, DeviceStep(step=0, rows=[row]))
        assert isinstance(report, StepDone)
        drawn.append(report.tokens)
        worker.stop()
        assert worker.join(5)
    device.close()

    weights = random_weights(CONFIG, 1, torch.float32)
    doubled = {name: tensor.double() for name, tensor in weights.items()}
    right = reference_logits(CONFIG, doubled, torch.tensor([[1, 2, 3, 4]]))[0, -1].argmax()
    assert drawn == [(None,), (int(right),)]
    with pytest.raises(RuntimeError, match="allocate"):
        device.start_worker(CONTEXT)


@pytest.mark.parametrize("damage", ["config.json", "model.safetensors", "tokenizer.json"])
def test_a_missing_file_is_a_model_error(directory: Path, damage: str) -> None:
    (directory / damage).unlink()

    with pytest.raises(ModelError, match=damage):
        open_torch(model=str(directory), device="cpu", dtype="auto")


@pytest.mark.parametrize("damage", ["config.json", "model.safetensors", "tokenizer.json"])
def test_a_truncated_file_is_a_model_error(directory: Path, damage: str) -> None:
    path = directory / damage
    path.write_bytes(path.read_bytes()[:-40])

    with pytest.raises(ModelError):
        open_torch(model=str(directory), device="cpu", dtype="auto")


def test_a_tokenizer_larger_than_the_model_is_a_model_error(directory: Path) -> None:
    """Its ids would index past the embedding in the middle of a step."""
    settings = json.loads((directory / "tokenizer.json").read_text())
    settings["model"]["vocab"]["zzzz"] = 300
    (directory / "tokenizer.json").write_text(json.dumps(settings))

    with pytest.raises(ModelError, match="belong together"):
        open_torch(model=str(directory), device="cpu", dtype="auto")


def test_a_name_that_is_no_directory_is_a_model_error() -> None:
    with pytest.raises(ModelError, match="no-such-model"):
        open_torch(model="no-such-model", device="cpu", dtype="auto")


@pytest.mark.parametrize(
    ("device", "dtype", "parameter"),
    [
        ("cpu", "float8", "dtype"),
        ("toaster", "auto", "device"),
        ("cuda:99", "auto", "device"),
    ],
)
def test_what_is_not_here_is_refused_by_name(
    whole: Path, device: str, dtype: str, parameter: str
) -> None:
    with pytest.raises(ValidationError) as caught:
        open_torch(model=str(whole), device=device, dtype=dtype)

    assert caught.value.parameter == parameter


@pytest.mark.parametrize(("device", "weights"), [("cpu", torch.float32), ("cuda", torch.bfloat16)])
def test_float32_is_the_default_on_a_cpu(device: str, weights: torch.dtype) -> None:
    """Products of bfloat16 are the slower ones on processors without AMX."""
    precision = choose_precision("auto", torch.device(device))

    assert precision.weights == weights
    assert precision.compute == torch.float32


def test_text_survives_the_tokenizer(whole: Path) -> None:
    """Special tokens are neither added to the input nor shown in the output."""
    tokenizer = HubTokenizer.load(whole / "tokenizer.json")
    text = "the cat sat, naïve 猫 🐈"

    ids = tokenizer.encode(text)

    assert tokenizer.decode(ids) == text
    assert tokenizer.decode([0, *ids, 0]) == text
    assert max(ids) < tokenizer.vocab_size <= 300
