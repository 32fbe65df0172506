"""The order of heads in Gated DeltaNet layers, as conversion changes it, undone."""

import attrs
import torch
from torch import Tensor

from adapters.models.gguf.transforms import as_conv, log_decay

__all__ = ["DeltaHeads"]


@attrs.frozen
class DeltaHeads:
    """Heads of a Gated DeltaNet layer: each key head has as many value heads."""

    keys: int
    values: int
    key_width: int
    value_width: int

    @property
    def each(self) -> int:
        """Value heads of a key head."""
        return self.values // self.keys

    def by_key_head(self, qkv: Tensor, gates: Tensor) -> Tensor:
        """Rows in order of key heads: each one's query, key, values and gates.

        Args:
            qkv: [queries + keys + values, hidden], each in order of heads.
            gates: [values, hidden].
        """
        rows = self.keys * self.key_width
        queries, keys, values = torch.split(qkv, [rows, rows, len(qkv) - 2 * rows])
        parts = [
            part.reshape(self.keys, -1, *qkv.shape[1:]) for part in (queries, keys, values, gates)
        ]
        return torch.cat(parts, 1).flatten(0, 1)

    def gathered(self, rows: Tensor) -> Tensor:
        """Value heads that lie dealt out over the key heads, each key head's together.

        Args:
            rows: [values * any, ...].
        """
        dealt = rows.reshape(self.each, self.keys, -1, *rows.shape[1:])
        return dealt.swapaxes(0, 1).reshape(rows.shape)

    def gathered_values(self, rows: Tensor) -> Tensor:
        """The same for the values among [queries + keys + values, ...]."""
        first = 2 * self.keys * self.key_width
        return torch.cat((rows[:first], self.gathered(rows[first:])))

    def gathered_conv(self, taps: Tensor) -> Tensor:
        """The same for a squeezed convolution over them; [channels, 1, taps] comes out."""
        return as_conv(self.gathered_values(taps))

    def gathered_columns(self, columns: Tensor) -> Tensor:
        """Value heads among the columns of [hidden, values]."""
        return self.gathered(columns.mT).mT

    def gathered_decay(self, decay: Tensor) -> Tensor:
        """``A_log`` of each value head, of ``A``."""
        return self.gathered(log_decay(decay))
