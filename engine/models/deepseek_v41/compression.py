"""Global rows and index keys, written by the layers that own them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from engine.models.deepseek_v41.caches import cached_rows, global_name, index_name, tail_name
from kernels.cache_ops.reference import RowNorm
from kernels.compressor.reference import GlobalRows, Pairs, pool_pairs
from kernels.matmul.reference import linear
from kernels.ops import Ops

if TYPE_CHECKING:
    from engine.models.deepseek_v41.config import DeepseekV41Config
    from engine.models.deepseek_v41.parameters import Weights
    from engine.models.deepseek_v41.step import PageWrite, Step
    from kernels.beside import Later


@dataclass(frozen=True, kw_only=True)
class Compressor:
    """Turns normed layer inputs into global rows (one for `ratio` tokens) and index keys."""

    owner: int
    ratio: int
    project: Tensor  # ratio 1: wkv [dim, width]; ratio 2: wkv and wgate
    norm: Tensor
    index_project: Tensor  # [index dim, dim]
    index_norm: Tensor
    eps: float
    ops: Ops

    @classmethod
    def read(cls, weights: Weights, config: DeepseekV41Config, owner: int) -> Compressor:
        """Parameters under `...attn.` of an owner."""
        ratio = config.compress_ratios[owner]
        if ratio == 1:
            project = weights["compressor.wkv.weight"]
        else:
            names = ("compressor.wkv.weight", "compressor.wgate.weight")
            project = torch.cat([weights[name] for name in names])
        return cls(
            owner=owner,
            ratio=ratio,
            project=project,
            norm=weights.wide("compressor.norm.weight"),
            index_project=weights["indexer.wk.weight"],
            index_norm=weights.wide("indexer.k_norm.weight"),
            eps=config.rms_norm_eps,
            ops=weights.ops,
        )

    def prepare(self, step: Step) -> None:
        """Make the tables that `write` needs, which depend on the batch alone."""
        pages = self._pages(step)
        if self.ratio == 2 and step.encoder.rows.in_place:
            self._pairs(pages, step)

    def _pages(self, step: Step) -> PageWrite:
        return step.pages(self.ratio, step.caches.rows_per_block(global_name(self.owner)))

    def write(self, x: Tensor, step: Step, prepared: Later[None]) -> None:
        """Write the rows that the batch closes. x [T, width] covers every row of the batch.

        `prepared` are the tables of `prepare`.
        """
        prepared.result()
        caches, pages = step.caches, self._pages(step)
        product = linear if self.ratio == 1 else self.ops.wide_linear
        pooled = product(x, self.project)
        if step.encoder.rows.in_place:
            self._write_in_place(pooled, pages, step, x.dtype)
            return
        if self.ratio == 2:
            pooled = self._close_pairs(pooled, pages, step)
        ops, norm = self.ops, self.ops.rms_norm
        latent = norm(pooled.to(x.dtype), self.norm, self.eps)  # [closed, dim]
        key = linear(latent, self.index_project)
        index, rows = (name(self.owner) for name in (index_name, global_name))
        if step.encoder.rows.sizes.reads_caches:
            to = pages.physical
            ops.insert_rows(cached_rows(caches, index), to, key, self._key_norm, pages.turn)
            ops.insert_rows(cached_rows(caches, rows), to, latent, None, pages.turn)
            return
        key = norm(key, self.index_norm, self.eps)
        caches.write(index, pages.physical, ops.rotate(key, pages.turn))
        caches.write(rows, pages.physical, ops.rotate(latent, pages.turn))

    @property
    def _key_norm(self) -> RowNorm:
        return RowNorm(weight=self.index_norm, eps=self.eps)

    def _write_in_place(
        self, fresh: Tensor, pages: PageWrite, step: Step, dtype: torch.dtype
    ) -> None:
        """The same for so few rows that none of them overwrites a tail that is read."""
        caches = step.caches
        index, rows = (cached_rows(caches, n(self.owner)) for n in (index_name, global_name))
        latent = self.ops.write_latents(
            fresh,
            self._pairs(pages, step) if self.ratio == 2 else None,
            RowNorm(weight=self.norm, eps=self.eps),
            GlobalRows(cache=rows, where=pages.physical, turn=pages.turn),
            dtype,
        )
        key = linear(latent, self.index_project)
        self.ops.insert_rows(index, pages.physical, key, self._key_norm, pages.turn)

    def _pairs(self, pages: PageWrite, step: Step) -> Pairs:
        name = tail_name(self.owner)
        assert pages.previous is not None, "rows of ratio 2 have one before"
        return Pairs(
            tails=step.caches.tensors[name],
            old=step.tail_rows(step.caches.groups[name].rows),  # type: ignore[union-attr]
            previous=pages.previous,
            keep=step.encoder.ring_places(step.caches, name),
        )

    def _close_pairs(self, fresh: Tensor, pages: PageWrite, step: Step) -> Tensor:
        """Pool each closing token with the one before it, which may be an older step's."""
        name = tail_name(self.owner)
        ring = step.caches.groups[name].rows  # type: ignore[union-attr]
        old = step.caches.read(name, step.tail_rows(ring))
        closing = fresh if pages.closing is None else fresh[pages.closing]
        pooled = pool_pairs(torch.cat((old, fresh))[pages.previous], closing)
        step.encoder.write_ring(step.caches, name, fresh)
        return pooled
