"""The transformers of IGAMT: mixed embeddings, causal attention, and one pass or one step at a time.

Built of linear layers and layer normalisation, which have cheap per-record gradients; a record attends to its
own steps and to no other record. Every layer is called once in a pass: several rows of a record (the record
and a made one) go through it together, as positions of that record.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu

from hauberk.synthesis.igamt_history import RunningHistory
from hauberk.synthesis.networks import COSINES, step_cosines
from hauberk.synthesis.packing import RowShape

FEED_FORWARD = 2  # times the width


@dataclass(frozen=True, kw_only=True)
class TransformerSizes:
    """What Enc, Dec and Dec_i have in common; ``time`` and ``static`` are embeddings."""

    width: int
    heads: int
    layers: int
    latent: int
    time: bool
    static: bool


class MixedEmbedding(nn.Module):
    """Tokens ``start, step 0, ..., step T - 1`` of a row (004 section 4.2.2, Fig. 4.3).

    The start token holds the static features. To every token are added its place, and as asked for the
    embedding of the time that has elapsed and the embedding of the static features. ``histories``: a token
    also holds what is known after its step (`hauberk.synthesis.igamt_history`). The outcome is in no token:
    it is drawn from the finished row.
    """

    kept: Tensor
    places: Tensor

    def __init__(self, shape: RowShape, sizes: TransformerSizes, *, histories: bool) -> None:
        super().__init__()
        width = sizes.width
        self.shape, self.histories = shape, histories
        self.register_buffer("kept", shape.head_without_outcome(), persistent=False)
        self.register_buffer("places", step_cosines(shape.steps + 1), persistent=False)
        more = history_width(shape) if histories else 0
        self.content = nn.Linear(shape.step_width + more, width)
        # without static features one input that is always zero: layers must have some
        self.start = nn.Linear(max(1, shape.head), width)
        self.place = nn.Linear(COSINES, width, bias=False)
        self.time = nn.Linear(COSINES, width, bias=False) if sizes.time else None
        self.static = nn.Linear(max(1, shape.head), width, bias=False) if sizes.static else None

    def forward(self, rows: Tensor, before: Tensor | None, elapsed: Tensor, *, tokens: int) -> Tensor:
        """The first ``tokens`` of ``T + 1``; ``before`` and ``elapsed`` are those of `history`."""
        _, steps = self.shape.parts(rows)
        content = steps[..., : tokens - 1, :]
        if before is not None:
            content = torch.cat([content, before[..., 1:tokens, :]], -1)
        start = self.start(self.start_features(rows)).unsqueeze(-2)
        found: Tensor = start if tokens == 1 else torch.cat([start, self.content(content)], -2)
        places = self.places[:tokens].expand(*rows.shape[:-1], tokens, COSINES)
        found = found + self.place(places)
        if self.time is not None:
            found = found + self.time(time_cosines(elapsed[..., :tokens]))
        if self.static is not None:
            found = found + self.static(self.start_features(rows)).unsqueeze(-2)
        return found

    def start_features(self, rows: Tensor) -> Tensor:
        """Static columns and masks without the outcome's."""
        if self.shape.head == 0:
            return rows.new_zeros(*rows.shape[:-1], 1)
        return rows[..., : self.shape.head] * self.kept

    def one(self, head: Tensor, step: Tensor | None, known: RunningHistory, place: int) -> Tensor:
        """``(n, width)``: the token at ``place`` of rows that are being made; ``step`` is the one before."""
        found: Tensor
        if step is None:
            found = self.start(head)
        else:
            more = [known.before()] if self.histories else []
            found = self.content(torch.cat([step, *more], -1))
        found = found + self.place(self.places[place])
        if self.time is not None:
            found = found + self.time(time_cosines(known.elapsed))
        return found if self.static is None else found + self.static(head)


def history_width(shape: RowShape) -> int:
    return 1 + shape.value_width + 2 * len(shape.temporal)


def time_cosines(elapsed: Tensor) -> Tensor:
    """(..., COSINES): a share of the horizon, from slow to fast."""
    return torch.cos(math.pi * elapsed.unsqueeze(-1) * torch.arange(COSINES, device=elapsed.device))


class Attention(nn.Module):
    """Multi-head attention among the tokens of one row; queries, keys and values without bias."""

    def __init__(self, width: int, *, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(width, width, bias=False)
        self.key = nn.Linear(width, width, bias=False)
        self.value = nn.Linear(width, width, bias=False)
        self.output = nn.Linear(width, width)

    def forward(self, tokens: Tensor, hidden: Tensor) -> Tensor:
        """``hidden`` is true where a query must not look at a key; broadcast over heads."""
        query, key, value = (self._split(layer(tokens)) for layer in (self.query, self.key, self.value))
        scores = (query @ key.transpose(-2, -1) / math.sqrt(query.shape[-1])).masked_fill(hidden, -1e9)
        out: Tensor = self.output((scores.softmax(-1) @ value).transpose(-3, -2).flatten(-2))
        return out

    def one(self, token: Tensor, cache: Tensor, place: int) -> Tensor:
        """``(n, 1, width)`` at ``place``; ``cache``: keys and values, ``(2, n, heads, T, width / heads)``."""
        query = self._split(self.query(token))
        cache[0, :, :, place] = self._split(self.key(token))[..., 0, :]
        cache[1, :, :, place] = self._split(self.value(token))[..., 0, :]
        keys, values = cache[..., : place + 1, :]
        scores = query @ keys.transpose(-2, -1) / math.sqrt(query.shape[-1])
        out: Tensor = self.output((scores.softmax(-1) @ values).transpose(-3, -2).flatten(-2))
        return out

    def _split(self, tokens: Tensor) -> Tensor:
        per_head = tokens.reshape(*tokens.shape[:-1], self.heads, tokens.shape[-1] // self.heads)
        return per_head.transpose(-3, -2)


class Block(nn.Module):
    """Attention and a feed-forward layer, each behind a LayerNorm and with a path around it.

    A decoder's block also reads the central hidden state: attention to a memory of one place is its value,
    so it is a linear map of that state, added to every token.
    """

    def __init__(self, width: int, *, heads: int, latent: int | None) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.attention = Attention(width, heads=heads)
        self.memory = None if latent is None else nn.Linear(latent, width, bias=False)
        self.norm2 = nn.LayerNorm(width)
        self.expand = nn.Linear(width, FEED_FORWARD * width)
        self.contract = nn.Linear(FEED_FORWARD * width, width)

    def forward(self, tokens: Tensor, hidden: Tensor, latent: Tensor | None) -> Tensor:
        tokens = tokens + self.attention(self.norm1(tokens), hidden)
        if self.memory is not None and latent is not None:
            tokens = tokens + self.memory(latent).unsqueeze(-2)
        thought: Tensor = self.contract(gelu(self.expand(self.norm2(tokens))))
        return tokens + thought

    def one(self, token: Tensor, latent: Tensor, cache: Tensor, place: int) -> Tensor:
        token = token + self.attention.one(self.norm1(token), cache, place)
        if self.memory is not None:
            token = token + self.memory(latent).unsqueeze(-2)
        thought: Tensor = self.contract(gelu(self.expand(self.norm2(token))))
        return token + thought


class TransformerEncoder(nn.Module):
    """Enc: a row to its central hidden state, ``latent`` numbers in (-1, 1) (004 section 4.2.2).

    Every token looks at all real tokens of its row; their mean is mapped to the state.
    """

    def __init__(self, shape: RowShape, sizes: TransformerSizes) -> None:
        super().__init__()
        self.shape = shape
        self.embedding = MixedEmbedding(shape, sizes, histories=False)
        self.blocks = nn.ModuleList(
            Block(sizes.width, heads=sizes.heads, latent=None) for _ in range(sizes.layers)
        )
        self.norm = nn.LayerNorm(sizes.width)
        self.out = nn.Linear(sizes.width, sizes.latent)

    def forward(self, rows: Tensor, elapsed: Tensor) -> Tensor:
        _, steps = self.shape.parts(rows)
        tokens = self.embedding(rows, None, elapsed, tokens=self.shape.steps + 1)
        real = torch.cat([torch.ones_like(steps[..., :1, -1]), steps[..., -1]], -1)
        hidden = (real < 0.5)[..., None, None, :]
        for block in self.blocks:
            tokens = block(tokens, hidden, None)
        mean = (self.norm(tokens) * real[..., None]).sum(-2) / real.sum(-1, keepdim=True)
        return torch.tanh(self.out(mean))


class TransformerDecoder(nn.Module):
    """Dec without its last layer, and Dec_i: hidden numbers for every step from the steps before it.

    Token t predicts step t and looks at tokens up to t (causal mask, shifted targets).
    """

    later: Tensor

    def __init__(self, shape: RowShape, sizes: TransformerSizes) -> None:
        super().__init__()
        self.shape, self.sizes = shape, sizes
        self.embedding = MixedEmbedding(shape, sizes, histories=True)
        self.blocks = nn.ModuleList(
            Block(sizes.width, heads=sizes.heads, latent=sizes.latent) for _ in range(sizes.layers)
        )
        self.norm = nn.LayerNorm(sizes.width)
        number = shape.steps
        self.register_buffer("later", torch.ones(number, number).triu(1).bool(), persistent=False)

    def forward(self, rows: Tensor, latent: Tensor, before: Tensor, elapsed: Tensor) -> Tensor:
        """``(..., T, width)``, teacher forced: step t of ``rows`` is seen by tokens after t alone."""
        tokens = self.embedding(rows, before, elapsed, tokens=self.shape.steps)
        for block in self.blocks:
            tokens = block(tokens, self.later, latent)
        found: Tensor = self.norm(tokens)
        return found

    def caches(self, rows: int, *, like: Tensor) -> list[Tensor]:
        """Room for the keys and values of rows that are made step by step."""
        heads, width = self.sizes.heads, self.sizes.width
        return [like.new_zeros(2, rows, heads, self.shape.steps, width // heads) for _ in self.blocks]

    def one(self, token: Tensor, latent: Tensor, caches: list[Tensor], place: int) -> Tensor:
        """``(n, width)`` for step ``place`` from its token."""
        token = token.unsqueeze(1)
        for block, cache in zip(self.blocks, caches, strict=True):
            assert isinstance(block, Block)
            token = block.one(token, latent, cache, place)
        found: Tensor = self.norm(token)[:, 0]
        return found
