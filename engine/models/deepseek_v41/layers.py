"""One layer between the streams: what backbone layers and draft stages have in common."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from engine.models.deepseek_v41.parameters import (
    MoeParameters,
    Weights,
    mixing_parameters,
    moe_parameters,
)
from kernels.beside import Later, ready
from kernels.hyper_connection.reference import Mixes, Mixing, collapse
from kernels.ops import Ops
from kernels.precision import at_least_float32

if TYPE_CHECKING:
    from collections.abc import Callable

    from engine.models.deepseek_v41.config import DeepseekV41Config


class Ahead(NamedTuple):
    """What the next layer would compute of the streams first, made on the way out of this one."""

    x: Tensor  # [rows, width]: what its attention sees
    mixed: Mixes  # of its attention

    def rows(self, index: Tensor) -> Ahead:
        """Some of the rows."""
        return Ahead(x=self.x[index], mixed=Mixes(*(part[index] for part in self.mixed)))


class Stream(NamedTuple):
    """The residual between layers: n streams, and how the next sublayer reads them.

    Each sublayer reads with the weights that the sublayer before it computed (lagged mHC).
    """

    streams: Tensor  # [rows, n, width]
    pre: Tensor  # [rows, n], at least float32
    ahead: Ahead | None = None  # None where streams change before the next layer, or none follows

    @classmethod
    def start(cls, embedding: Tensor, ids: Tensor, n: int) -> Stream:
        """n copies of the embeddings of ids [rows]; the first sublayer reads the first copy."""
        each = ids.unsqueeze(1).expand(-1, n).flatten()
        streams = embedding[each].unflatten(0, (-1, n))  # ids of padding may be negative
        wide = at_least_float32(streams.dtype)
        pre = torch.zeros(len(ids), n, dtype=wide, device=streams.device)
        pre[:, :1].fill_(1)
        return cls(streams=streams, pre=pre)

    def rows(self, index: Tensor) -> Stream:
        """Some of the rows."""
        ahead = None if self.ahead is None else self.ahead.rows(index)
        return Stream(streams=self.streams[index], pre=self.pre[index], ahead=ahead)

    def collapsed(self) -> Tensor:
        """What the next sublayer reads, before its norm: [rows, width]."""
        return collapse(self.streams, self.pre)

    def mean(self) -> Tensor:
        """Mean of the streams in at least float32, rounded to their dtype: [rows, width]."""
        wide = at_least_float32(self.streams.dtype)
        return self.streams.mean(1, dtype=wide).to(self.streams.dtype)


@dataclass(frozen=True, kw_only=True)
class Block:
    """Norms, mixing and experts of one layer; attention comes from outside."""

    attention_norm: Tensor
    ffn_norm: Tensor
    attention_mixing: Mixing
    ffn_mixing: Mixing
    moe: MoeParameters
    eps: float
    ops: Ops

    @classmethod
    def read(
        cls, weights: Weights, config: DeepseekV41Config, *, experts: int, per_token: int
    ) -> Block:
        """Parameters under `layers.N.` or `mtp.N.`."""
        return cls(
            attention_norm=weights.wide("attn_norm.weight"),
            ffn_norm=weights.wide("ffn_norm.weight"),
            attention_mixing=mixing_parameters(weights, config, "attn"),
            ffn_mixing=mixing_parameters(weights, config, "ffn"),
            moe=moe_parameters(weights.under("ffn."), config, experts=experts, per_token=per_token),
            eps=config.rms_norm_eps,
            ops=weights.ops,
        )

    def attention_input(self, stream: Stream) -> Tensor:
        """What attention (and a compressor) sees: [rows, width]."""
        if stream.ahead is not None:
            return stream.ahead.x
        return self.ops.collapse_norm(stream.streams, stream.pre, self.attention_norm, self.eps)

    def run(
        self,
        stream: Stream,
        x: Tensor,
        attention: Callable[[Tensor], Tensor],
        live: Tensor | None = None,
        after: Block | None = None,
    ) -> Stream:
        """The layer, given `x = attention_input(stream)`; rows that are not live are padding.

        `after` is the layer that reads the streams as they come out of this one.
        """
        ops = self.ops
        mixing = self._start_mixing(stream)
        attended = attention(x)
        mixed = ready(mixing)
        streams, inner, mixed = ops.between_sublayers(
            attended, stream.streams, mixed, self.ffn_norm, self.eps, self.ffn_mixing
        )
        added = run_moe(inner, self.moe, live)
        if after is None:
            return Stream(streams=ops.expand(added, streams, mixed), pre=mixed.pre)
        out, x, following = ops.between_sublayers(
            added, streams, mixed, after.attention_norm, after.eps, after.attention_mixing
        )
        return Stream(streams=out, pre=mixed.pre, ahead=Ahead(x=x, mixed=following))

    def _start_mixing(self, stream: Stream) -> Mixes | Later[Mixes]:
        """How attention's output will be mixed: what the layer before made, or made beside it."""
        if stream.ahead is not None:
            return stream.ahead.mixed
        mix = partial(self.ops.mixes, stream.streams, self.attention_mixing)
        return self.moe.beside.start(mix, len(stream.pre))


def run_moe(x: Tensor, moe: MoeParameters, live: Tensor | None = None) -> Tensor:
    """Routed experts plus the shared one: x [rows, width], same shape and dtype back.

    Rows that are not `live` [rows] choose no expert.
    """
    chosen, weights = moe.ops.route(x, moe.router, live)
    shared = moe.beside.start(lambda: _shared_expert(x, moe), len(x))
    return moe.ops.run_experts(x, moe.experts, chosen, weights, shared)


def _shared_expert(x: Tensor, moe: MoeParameters) -> Tensor:
    inner = moe.ops.swiglu(moe.ops.linear(x, moe.shared_gate_up), moe.experts.limit, None)
    return moe.ops.linear(inner, moe.shared_down)
