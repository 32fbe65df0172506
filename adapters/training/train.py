r"""Train the bundled model: about an hour on two cores, to be stopped and taken up at will.

The schedule runs by the clock, not by steps, so that a busy machine trains less but never longer:
a short warm-up, a constant rate, and a linear cool-down over the last part. A file named
``cooldown`` in the work directory starts the cool-down early. An average of the weights is
exported every few minutes, so that a usable model is there long before the end.

    python -m adapters.training.corpus --work-dir DIR
    python -m torch.distributed.run --nproc-per-node 2 -m adapters.training.train \
        --work-dir DIR --export adapters/models/bundled
"""

import argparse
import time
from pathlib import Path

import attrs
import torch
from tokenizers import Tokenizer
from torch import Tensor
from torch.nn import functional

from adapters.models.hybrid import HybridConfig
from adapters.models.weights import random_weights, save_model
from adapters.training.chunked import chunked_logits
from adapters.training.corpus import read_corpus
from adapters.training.data import Windows, encode_documents
from adapters.training.muon import make_optimizers
from adapters.training.peers import Peers
from adapters.training.tokenizer import TOKENIZER_FILE, train_tokenizer

__all__ = ["BUNDLED", "Schedule", "Trainer"]

BUNDLED = HybridConfig(
    name="tenure-bundled",
    vocab_size=2048,
    hidden_size=256,
    layer_types=("mamba2", "mamba2", "mamba2", "attention", "mamba2", "mamba2", "mamba2"),
    state_size=32,
    head_dim=64,
    expand=2,
    chunk_size=64,
    num_heads=4,
    num_kv_heads=2,
    attn_head_dim=64,
    max_model_len=4096,
    eos_token_ids=(0,),
)
BATCH_TOKENS = 4096
SHORT, LONG = 512, 2048
MUON_RATE, ADAM_RATE = 0.02, 0.004


@attrs.define
class Schedule:
    """Learning-rate factor as a function of the seconds spent."""

    total_s: float
    cooldown_s: float
    warmup_s: float = 60.0

    def factor(self, spent_s: float) -> float:
        """Between 0 and 1; reaches 0 at ``total_s``."""
        left = max(0.0, self.total_s - spent_s)
        return min(1.0, (spent_s + 1) / self.warmup_s, left / self.cooldown_s)

    def cool_down_from(self, spent_s: float) -> None:
        """Start the cool-down now if it lies ahead."""
        self.total_s = min(self.total_s, spent_s + self.cooldown_s)


@attrs.define(eq=False, slots=False)
class Trainer:
    """Weights, their average, optimizers and data of one run, and how far it has come."""

    config: HybridConfig
    documents: list[list[int]]
    schedule: Schedule
    peers: Peers
    seed: int = 0
    spent_s: float = 0.0
    steps: int = 0

    def __attrs_post_init__(self) -> None:
        drawn = random_weights(self.config, self.seed, torch.float32)
        self.weights: dict[str, Tensor] = {n: w.requires_grad_() for n, w in drawn.items()}
        self.average = {name: w.detach().clone() for name, w in self.weights.items()}
        self.muon, self.adam = make_optimizers(self.weights, MUON_RATE, ADAM_RATE, self.peers)
        self.short = Windows(self.documents, SHORT, self.seed + 1)
        self.long = Windows(self.documents, LONG, self.seed + 2)

    def step(self) -> float:
        """One update; long windows come in halfway, every second step. Returns the loss in nats."""
        late = self.spent_s > self.schedule.total_s / 2
        windows, length = (self.long, LONG) if late and self.steps % 2 else (self.short, SHORT)
        rows = windows.take(BATCH_TOKENS // length)
        tokens = rows[self.peers.rank :: self.peers.size]
        logits = chunked_logits(self.config, self.weights, tokens[:, :-1])
        loss = functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        (loss / self.peers.size).backward()  # type: ignore[no-untyped-call]
        self.peers.total([w.grad for w in self.weights.values() if w.grad is not None])
        self._apply()
        self.steps += 1
        return loss.item()

    def tell_time(self, spent_s: float) -> None:
        """Agree on the leader's clock and on the end of the schedule."""
        agreed = self.peers.from_leader([spent_s, self.schedule.total_s])
        self.spent_s, self.schedule.total_s = agreed

    def _apply(self) -> None:
        factor = self.schedule.factor(self.spent_s)
        self.muon.rate = MUON_RATE * factor
        for group in self.adam.param_groups:
            group["lr"] = ADAM_RATE * factor
        torch.nn.utils.clip_grad_norm_(self.weights.values(), 1.0)
        self.muon.step()
        self.adam.step()  # pyright: ignore[reportUnknownMemberType]
        blend = max(0.01, 1 / (self.steps + 1))
        with torch.no_grad():
            for name, weight in self.weights.items():
                self.average[name].lerp_(weight, blend)
                weight.grad = None

    def save(self, path: Path) -> None:
        """Write a checkpoint, whole or not at all."""
        state = {
            "weights": self.weights,
            "average": self.average,
            "muon": self.muon.state_dict(),
            "adam": self.adam.state_dict(),
            "taken": (self.short.taken, self.long.taken),
            "progress": (self.spent_s, self.steps, self.schedule.total_s),
        }
        torch.save(state, path.with_suffix(".new"))
        path.with_suffix(".new").replace(path)

    def load(self, path: Path) -> None:
        """Take up a checkpoint of the same configuration and corpus."""
        state = torch.load(path)
        for name, weight in self.weights.items():
            weight.data.copy_(state["weights"][name])
            self.average[name].copy_(state["average"][name])
        self.muon.load_state_dict(state["muon"])
        self.adam.load_state_dict(state["adam"])
        self.short.taken, self.long.taken = state["taken"]
        self.spent_s, self.steps, self.schedule.total_s = state["progress"]


def run(trainer: Trainer, work_dir: Path, export: Path, export_every_s: float) -> None:
    """Train to the end of the schedule, with a line, a checkpoint and an export now and then."""
    checkpoint, asked = work_dir / "checkpoint.pt", work_dir / "cooldown"
    if checkpoint.exists():
        trainer.load(checkpoint)
    leads, before_s, begun = trainer.peers.leads, trainer.spent_s, time.monotonic()
    next_export_s = before_s + export_every_s
    losses: list[float] = []
    while trainer.spent_s < trainer.schedule.total_s:
        losses.append(trainer.step())
        spent_s = before_s + time.monotonic() - begun
        if leads and asked.exists():
            asked.unlink()
            trainer.schedule.cool_down_from(spent_s)
        trainer.tell_time(spent_s)
        if leads and trainer.steps % 25 == 0:
            speed = BATCH_TOKENS * len(losses) / (trainer.spent_s - before_s)
            report(trainer, losses[-25:], speed)
        if leads and trainer.steps % 100 == 0:
            trainer.save(checkpoint)
        if leads and trainer.spent_s > next_export_s:
            next_export_s += export_every_s
            save_model(export, trainer.config, trainer.average)
    if leads:
        trainer.save(checkpoint)
        save_model(export, trainer.config, trainer.weights)


def report(trainer: Trainer, losses: list[float], tokens_per_s: float) -> None:
    """Print where the run stands."""
    loss = sum(losses) / len(losses)
    print(
        f"step {trainer.steps}  {trainer.spent_s / 60:.1f} min  loss {loss:.4f}  "
        f"{tokens_per_s:.0f} tokens/s  epoch {epochs(trainer):.2f}",
        flush=True,
    )


def epochs(trainer: Trainer) -> float:
    """How often the training text has been read, over both window lengths."""
    short = trainer.short.taken / trainer.short.per_epoch
    return short + trainer.long.taken / trainer.long.per_epoch


def main() -> None:
    parser = argparse.ArgumentParser(description="Train the bundled model.")
    parser.add_argument("--work-dir", type=Path, required=True, help="corpus and checkpoints")
    parser.add_argument("--export", type=Path, required=True, help="where the model goes")
    parser.add_argument("--minutes", type=float, default=70.0)
    parser.add_argument("--cooldown-minutes", type=float, default=20.0)
    parser.add_argument("--export-every-minutes", type=float, default=10.0)
    options = parser.parse_args()
    work_dir: Path = options.work_dir
    export: Path = options.export
    peers = Peers()
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    training = [document for document in read_corpus(work_dir) if not document.held_out]
    tokenizer_file = export / TOKENIZER_FILE
    if peers.leads and not (work_dir / "checkpoint.pt").exists():
        texts = (document.text for document in training)
        train_tokenizer(texts, BUNDLED.vocab_size, export)
    peers.from_leader([0.0])
    tokenizer = Tokenizer.from_file(str(tokenizer_file))
    schedule = Schedule(60 * options.minutes, 60 * options.cooldown_minutes)
    trainer = Trainer(BUNDLED, encode_documents(tokenizer, training), schedule, peers)
    size = sum(weight.numel() for weight in trainer.weights.values())
    tokens = sum(map(len, trainer.documents))
    text_bytes = sum(len(document.text) for document in training)
    if peers.leads:
        print(f"{size} parameters, {tokens} tokens, {text_bytes / tokens:.2f} bytes per token")
    run(trainer, work_dir, export, 60 * options.export_every_minutes)


if __name__ == "__main__":
    main()
