"""A model directory as transformers writes it: opened, asked in messages, equal to the peer."""

from pathlib import Path
from typing import Any

import pytest

from kernel import Engine, EngineConfig, SamplingParams
from tests.text.conversations import said
from tests.text.templates import TEMPLATES
from tests.text.trained import library, tokenizer

transformers = pytest.importorskip("transformers")
# Named here, for it takes seconds to import, and collecting has no time limit.
LlamaForCausalLM = transformers.LlamaForCausalLM

SHAPE = TEMPLATES["qwen3"]
MESSAGES = [said("system", "Be brief."), said("user", "Hello")]


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny Llama with random weights, its tokenizer and its chat template."""
    made = tmp_path_factory.mktemp("model")
    transformers.set_seed(4)
    size = tokenizer("byte level with a beginning").vocab_size
    config = transformers.LlamaConfig(
        # As checkpoints do: the embedding is padded to a multiple, the tokenizer is smaller.
        vocab_size=-(-size // 64) * 64,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=512,
        eos_token_id=None,
        bos_token_id=None,
    )
    LlamaForCausalLM(config).save_pretrained(made)
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=library("byte level with a beginning"),
        bos_token="<|begin_of_text|>",
        eos_token=SHAPE.end,
        pad_token="<pad>",
        chat_template=SHAPE.source,
    ).save_pretrained(made)
    return made


@pytest.fixture(scope="module")
def peer(directory: Path) -> Any:
    return transformers.AutoTokenizer.from_pretrained(directory)


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_messages_and_text_are_the_tokens_of_the_peer(directory: Path, peer: Any) -> None:
    """A plain text begins as the post-processor says; messages as the template says."""
    short = SamplingParams(temperature=0, max_tokens=3)
    config = EngineConfig(model=str(directory), log_events=False, num_pages=64, max_num_seqs=2)
    async with Engine.open(config) as engine:
        text = await engine.complete("the cat 😀", short)
        chat = await engine.complete(MESSAGES, short)
        async with engine.session() as session:
            async with session.turn(MESSAGES, short) as turn:
                first = await turn.wait()
            async with session.turn([said("user", "And now?")], short) as turn:
                second = await turn.wait()
        ends = engine.core.model.eos_token_ids
    whole = [*MESSAGES, said("assistant", first.text), said("user", "And now?")]
    log = [*first.prompt_token_ids, *first.token_ids, *second.prompt_token_ids]
    theirs = peer.apply_chat_template(MESSAGES, add_generation_prompt=True, return_dict=False)
    then = peer.apply_chat_template(whole, add_generation_prompt=True, return_dict=False)

    assert list(text.prompt_token_ids) == peer("the cat 😀")["input_ids"]
    assert list(chat.prompt_token_ids) == list(first.prompt_token_ids) == theirs
    assert peer.decode(log) == peer.decode(then)
    assert peer.convert_tokens_to_ids(SHAPE.end) in ends
