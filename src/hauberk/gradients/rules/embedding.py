"""Embeddings: a record's gradient lives in the rows that the record looked up."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from hauberk.gradients.contributions import Materialised, PerRecordGradient, gram_norms
from hauberk.gradients.rules.registry import LayerCall, gradient_rule


@dataclass(frozen=True)
class Lookups:
    """Row ``rows[i, t]`` of the table receives ``gradients[i, t]``; the table itself is never formed."""

    rows: Tensor
    gradients: Tensor
    table: torch.Size

    def norms(self) -> Tensor:
        same = (self.rows.unsqueeze(1) == self.rows.unsqueeze(2)).to(self.gradients.dtype)
        return gram_norms(self.gradients[..., :1], self.gradients, overlap=same)

    def weighted_sum(self, factors: Tensor) -> Tensor:
        weighted = (self.gradients * factors[:, None, None]).flatten(0, 1)
        return self.gradients.new_zeros(self.table).index_add_(0, self.rows.flatten(), weighted)

    def materialised(self) -> Tensor:
        records, rows = len(self.rows), self.table[0]
        first_row = torch.arange(records, device=self.rows.device).unsqueeze(1) * rows
        every = self.gradients.new_zeros(records * rows, self.table[1])
        every.index_add_(0, (self.rows + first_row).flatten(), self.gradients.flatten(0, 1))
        return every.view(records, *self.table)

    def scaled(self, multiplier: Tensor) -> Lookups:
        picked = multiplier.expand(self.table)[self.rows]
        return Lookups(self.rows, self.gradients * picked, self.table)

    def bytes_held(self) -> int:
        return self.gradients.numel() * self.gradients.element_size() + 8 * self.rows.numel()


@gradient_rule(nn.Embedding)
def embedding_gradients(call: LayerCall) -> dict[str, PerRecordGradient]:
    layer = call.layer
    assert isinstance(layer, nn.Embedding)
    rows = call.per_record(call.input).flatten(1)
    gradients = call.per_record(call.output_gradient).flatten(1, -2)
    if layer.padding_idx is not None:
        gradients = gradients * (rows != layer.padding_idx).unsqueeze(-1)
    lookups = Lookups(rows, gradients, layer.weight.shape)
    if rows.shape[1] ** 2 < layer.weight.numel():
        return {"weight": lookups}
    return {"weight": Materialised(lookups.materialised())}
