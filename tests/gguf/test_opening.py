"""A file as an engine opens it: weights, tokenizer, chat template and ends of sequence."""

from pathlib import Path

import attrs
import pytest
from tokenizers.pre_tokenizers import ByteLevel

from adapters.models.errors import ModelNotFound, TokenizerMismatch
from adapters.torch_device.factory import open_torch
from kernel import Engine, EngineConfig, SamplingParams
from tests.gguf.models import case_of, make_both

TOKENS = ["<bos>", "<end>", *sorted(ByteLevel.alphabet()), "Hi", "<turn>"]
TEMPLATE = "{{ bos_token }}{% for m in messages %}<turn>{{ m.content }}<end>{% endfor %}"
VOCABULARY = {
    "tokenizer.ggml.model": "gpt2",
    "tokenizer.ggml.pre": "llama-bpe",
    "tokenizer.ggml.tokens": TOKENS,
    "tokenizer.ggml.token_type": [3, 3, *([1] * 257), 3],
    "tokenizer.ggml.merges": ["H i"],
    "tokenizer.ggml.bos_token_id": 0,
    "tokenizer.ggml.eos_token_id": 1,
    "tokenizer.ggml.eot_token_id": 259,
    "tokenizer.chat_template": TEMPLATE,
}
pytestmark = pytest.mark.timeout(120)


def write(root: Path, rows: int = 264) -> Path:
    case = case_of("llama:grouped")
    wide = attrs.evolve(case, settings={**case.settings, "vocab_size": rows})
    return make_both(wide, root, metadata=VOCABULARY)[1]


def test_a_file_opens_with_its_text_and_its_ends(tmp_path: Path) -> None:
    path = write(tmp_path)

    opened = open_torch(model=str(path), device="cpu", dtype="auto")
    again = open_torch(model=str(path), device="cpu", dtype="auto")

    assert opened.tokenizer.encode("Hi<end>") == [258, 1]
    assert opened.opening_ids == (0,)
    assert opened.chat is not None
    assert set(opened.device.model.eos_token_ids) == {1, 259}
    assert opened.device.model.fingerprint == again.device.model.fingerprint != ""


@pytest.mark.anyio
async def test_an_engine_answers_messages_from_a_file(tmp_path: Path) -> None:
    config = EngineConfig(model=str(write(tmp_path)), num_pages=32)
    async with Engine.open(config) as engine, engine.session() as session:
        messages = [{"role": "user", "content": "Hi"}]
        sampling = SamplingParams(temperature=0, max_tokens=3, ignore_eos=True)
        async with session.turn(messages, sampling) as turn:
            async for _ in turn:
                pass

        # <bos> <turn> Hi <end>, and three tokens.
        assert session.info.num_tokens == 7


def test_a_tokenizer_with_more_ids_than_the_model_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path, rows=250)

    with pytest.raises(TokenizerMismatch, match="the tokenizer has 260 ids, the model only 250"):
        open_torch(model=str(path), device="cpu", dtype="auto")


def test_another_file_is_no_model(tmp_path: Path) -> None:
    path = tmp_path / "model.bin"
    path.write_bytes(b"")

    with pytest.raises(ModelNotFound):
        open_torch(model=str(path), device="cpu", dtype="auto")
