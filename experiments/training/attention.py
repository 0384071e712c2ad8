"""Attention over whole sequences: a banded window, global rows, one softmax with a sink.

B sequences of L tokens, H heads of size d, window W (which divides L), N global rows.
Scores and probabilities are float32; products run in the dtype of the queries.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
import torch.nn.functional as F

if TYPE_CHECKING:
    from torch import Tensor
    from torch.autograd.function import FunctionCtx


_UNSEEN = -1e30  # finite, so that a query without any global row needs no case of its own


class Attended(NamedTuple):
    """Result of attention."""

    out: Tensor  # [B, L, H, d]
    lse: Tensor  # [B, L, H] float32: log of the softmax's denominator


class GatherRows(torch.autograd.Function):
    """rows[index] whose gradient is summed in float32, whatever the dtype of the rows.

    rows [N, d], index [...] int64. Returns [..., d]. (The built-in gradient sums in the rows'
    dtype, and sorts the index first.)
    """

    @staticmethod
    def forward(ctx: FunctionCtx, rows: Tensor, index: Tensor) -> Tensor:
        """Gather."""
        ctx.save_for_backward(index)
        ctx.rows, ctx.dtype = rows.shape[0], rows.dtype
        return rows.index_select(0, index.flatten()).unflatten(0, index.shape)

    @staticmethod
    def backward(ctx: FunctionCtx, grad: Tensor) -> tuple[Tensor, None]:
        """Add every gradient to its row."""
        (index,) = ctx.saved_tensors
        total = grad.new_zeros((ctx.rows, grad.shape[-1]), dtype=torch.float32)
        total.index_add_(0, index.flatten(), grad.flatten(0, -2).float())
        return total.to(ctx.dtype), None


def window_only(
    queries: Tensor, rows: Tensor, sink: Tensor, floor: Tensor | None, window: int
) -> Attended:
    """Attention to the newest `window` rows up to and including the query's own.

    queries [B, L, H, d], rows [B, L, d]; floor [B]: see `_band`.
    """
    scores = _window_scores(queries, rows, floor, window)
    lse = torch.logaddexp(scores.logsumexp(-1), sink)
    return Attended(_window_values(scores, lse, rows, window), lse)


def dense(
    queries: Tensor,
    rows: Tensor,
    sink: Tensor,
    floor: Tensor | None,
    seen: Dense,
) -> Attended:
    """Attention to the window and to every visible global row."""
    flat = queries.flatten(1, 2)  # [B, L * H, d]
    near = _window_scores(queries, rows, floor, seen.window)
    far = (flat @ seen.rows.mT).float() * queries.shape[-1] ** -0.5
    far = far.unflatten(1, queries.shape[1:3]).masked_fill(~seen.visible.unsqueeze(-2), -torch.inf)
    lse = torch.logaddexp(near.logsumexp(-1), sink)
    lse = torch.logaddexp(lse, far.logsumexp(-1))
    p = (far - lse.unsqueeze(-1)).exp().to(rows.dtype)
    out = (p.flatten(1, 2) @ seen.rows).unflatten(1, queries.shape[1:3])
    return Attended(out + _window_values(near, lse, rows, seen.window), lse)


class Dense(NamedTuple):
    """Global rows that are all candidates for every query."""

    rows: Tensor  # [B, N, d]
    visible: Tensor  # [L, N] bool, or [B, L, N] for a selection
    window: int


def sparse(
    queries: Tensor,
    rows: Tensor,
    sink: Tensor,
    floor: Tensor | None,
    seen: Selected,
) -> Attended:
    """Attention to the window and to the rows selected for each query."""
    batch, length = queries.shape[:2]
    flat = queries.flatten(0, 1)  # [T, H, d]
    near = _window_scores(queries, rows, floor, seen.window)
    far = (flat @ seen.rows.mT).float() * queries.shape[-1] ** -0.5
    far = far.masked_fill(~seen.valid.unsqueeze(-2), _UNSEEN).unflatten(0, (batch, length))
    lse = torch.logaddexp(near.logsumexp(-1), sink)
    lse = torch.logaddexp(lse, far.logsumexp(-1))
    p = (far - lse.unsqueeze(-1)).exp().to(rows.dtype)
    out = (p.flatten(0, 1) @ seen.rows).unflatten(0, (batch, length))
    return Attended(out + _window_values(near, lse, rows, seen.window), lse)


class Selected(NamedTuple):
    """The global rows of each query, gathered."""

    rows: Tensor  # [T, k, d]
    valid: Tensor  # [T, k] bool
    window: int


def _window_scores(queries: Tensor, rows: Tensor, floor: Tensor | None, window: int) -> Tensor:
    """Scores against a band of 2 W rows: [B, L, H, 2 W], -inf where the query does not see.

    Column j of a query in block b stands for position (b - 1) * W + j.
    """
    batch, length, heads, dim = queries.shape
    blocks = length // window
    grouped = queries.reshape(batch, blocks, window * heads, dim)
    scores = (grouped @ _bands(rows, window).mT).float() * dim**-0.5
    seen = _band(length, window, floor, queries.device)
    scores = scores.view(batch, blocks, window, heads, 2 * window)
    scores = scores.masked_fill(~seen.unsqueeze(-2), -torch.inf)
    return scores.flatten(1, 2)


def _window_values(scores: Tensor, lse: Tensor, rows: Tensor, window: int) -> Tensor:
    batch, length, heads, _ = scores.shape
    p = (scores - lse.unsqueeze(-1)).exp().to(rows.dtype)
    grouped = p.view(batch, length // window, window * heads, 2 * window)
    return (grouped @ _bands(rows, window)).view(batch, length, heads, -1)


def _bands(rows: Tensor, window: int) -> Tensor:
    """Each block of W rows with the block before it: [B, blocks, 2 W, d]."""
    blocks = rows.unflatten(1, (-1, window))
    before = F.pad(blocks[:, :-1], (0, 0, 0, 0, 1, 0))
    return torch.cat((before, blocks), 2)


def _band(length: int, window: int, floor: Tensor | None, device: torch.device) -> Tensor:
    """Which columns of its band a query sees: [1 or B, blocks, W, 2 W].

    floor [B]: rows before it do not exist for queries at or after it (decoder truncation).
    """
    position = torch.arange(length, device=device).view(1, -1, window, 1)
    column = torch.arange(2 * window, device=device)
    key = (position // window - 1) * window + column  # [1, blocks, W, 2 W]
    seen = (key >= 0) & (key <= position) & (key > position - window)
    if floor is None:
        return seen
    floor = floor.view(-1, 1, 1, 1)
    return seen & ((position < floor) | (key >= floor))
