"""Cases of choosing: rows of a cache, and tokens. See `kernels.cases`."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from kernels.cache_ops.reference import CachedRows, Pages
from kernels.case import Arguments, Case, Run, normal
from kernels.cases_attention import in_pages, make_cache, stored_bytes
from kernels.sampling.reference import Choice, Narrowing, SamplingRules
from kernels.topk.reference import Blocks

PER_BLOCK = 16
NO_BLOCK = 2_147_480_000  # in a table where nobody looks: an address that does not exist


def _pages(tables: int, n: int, blocks: int, device: torch.device) -> Pages:
    drawn = torch.rand(tables, blocks, device=device).argsort(1)
    return Pages(table=drawn[:, : -(-n // PER_BLOCK)].contiguous(), rows_per_block=PER_BLOCK)


def _alone(keys: CachedRows, pages: Pages, counts: Tensor) -> tuple[CachedRows, Pages]:
    """NaN in the keys that no query sees, and blocks that do not exist where no table is read."""
    tables = len(pages.table)
    most = counts.view(tables, -1).amax(1) if len(counts) else counts.new_zeros(tables)
    logical = torch.arange(pages.table.shape[1] * PER_BLOCK, device=counts.device)
    seen = logical < most[:, None]
    dead = torch.ones(len(keys.tensor), dtype=torch.bool, device=counts.device)
    dead[pages.physical(logical.expand(tables, -1))[seen]] = False
    held = keys.tensor.clone()
    held[dead] = 0xFF if keys.packing else torch.nan
    table = torch.where(seen[:, ::PER_BLOCK], pages.table, NO_BLOCK)
    return replace(keys, tensor=held), replace(pages, table=table)


def _scores_observed(run: Run, arguments: Arguments) -> object:
    scores = run(*arguments)
    assert isinstance(scores, Tensor)
    dead = scores == -torch.inf
    return scores.masked_fill(dead, 0), dead.long()


def score_case(
    heads: int, width: int, context: int, packing: str | None, *, is_shared: bool = False,
    has_pages: bool = False,
) -> Case:  # fmt: skip
    """Contexts of every length, none included; shared ones are those of one sequence."""
    blocks = -(-context // PER_BLOCK) + 3

    def make(rows: int, dtype: torch.dtype, device: torch.device) -> Arguments:
        keys = make_cache(width, packing, blocks * PER_BLOCK, dtype, device)
        counts = torch.randint(0, context + 1, (rows,), device=device)
        queries = normal((rows, heads, width), dtype, device)
        weights = normal((rows, heads), dtype, device)
        pages = _pages(1 if is_shared else rows, context, blocks, device)
        keys, pages = _alone(keys, pages, counts)
        keys = in_pages(keys) if has_pages else keys
        return queries, weights, keys, pages, counts, context

    keys_bytes = stored_bytes(context, width, packing) // 2
    return Case(
        op="score_rows",
        name=f"{heads} heads of {width}, {context} {packing or 'plain'}"
        + (" shared" if is_shared else "")
        + (" paged" if has_pages else ""),
        make=make,
        bytes_per_row=lambda size: (
            heads * (width + 1) * size + 4 * context + (0 if is_shared else keys_bytes)
        ),
        fixed_bytes=keys_bytes if is_shared else 0,
        flops=lambda rows: rows * heads * width * context,  # half of the keys are visible
        observe=_scores_observed,
        waits=True,
    )


def far_score_case(heads: int, width: int, context: int, packing: str) -> Case:
    """Whole contexts, each with keys of its own, so that all of them come from memory."""
    near = score_case(heads, width, context, packing)
    blocks = -(-context // PER_BLOCK)

    def make(rows: int, dtype: torch.dtype, device: torch.device) -> Arguments:
        keys = make_cache(width, packing, rows * blocks * PER_BLOCK, dtype, device)
        queries = normal((rows, heads, width), dtype, device)
        table = torch.randperm(rows * blocks, device=device).view(rows, blocks)
        pages = Pages(table=table, rows_per_block=PER_BLOCK)
        counts = torch.full((rows,), context, device=device)
        return queries, normal((rows, heads), dtype, device), keys, pages, counts, context

    return replace(
        near,
        name=f"{heads} heads of {width}, all {context} {packing} apart",
        make=make,
        bytes_per_row=lambda size: (
            heads * (width + 1) * size + 4 * context + stored_bytes(context, width, packing)
        ),
        flops=lambda rows: 2 * rows * heads * width * context,
        timed_rows=(1, 32, 128),
    )


def causal_score_case(heads: int, width: int, context: int, packing: str) -> Case:
    """The end of a prompt: each query of one sequence sees a little more than the one before."""
    near = score_case(heads, width, context, packing, is_shared=True)
    blocks = -(-context // PER_BLOCK)

    def make(rows: int, dtype: torch.dtype, device: torch.device) -> Arguments:
        keys = make_cache(width, packing, blocks * PER_BLOCK, dtype, device)
        queries = normal((rows, heads, width), dtype, device)
        counts = torch.arange(1, rows + 1, device=device) * context // rows
        pages = _pages(1, context, blocks, device)
        return queries, normal((rows, heads), dtype, device), keys, pages, counts, context

    return replace(near, name=f"{near.name} causal", make=make, timed_rows=(2048, 8192))


def distant_score_case(heads: int, width: int, packing: str, reach: int = 1 << 32) -> Case:
    """Keys that begin `reach` bytes and more from where the cache does; those before are NaN."""
    near = score_case(heads, width, 512, packing)

    def make(rows: int, dtype: torch.dtype, device: torch.device) -> Arguments:
        queries, weights, keys, pages, *others = near.make(rows, dtype, device)
        assert isinstance(keys, CachedRows)
        assert isinstance(pages, Pages)
        count, size = keys.tensor.shape
        blocks = -(-reach // (size * PER_BLOCK))
        held = torch.full(
            (blocks * PER_BLOCK + count, size), 0xFF, dtype=torch.uint8, device=device
        )
        held[-count:] = keys.tensor
        table = torch.where(pages.table == NO_BLOCK, NO_BLOCK, pages.table + blocks)
        distant = replace(keys, tensor=held), replace(pages, table=table)
        return queries, weights, *distant, *others

    return replace(near, name=f"{near.name} distant", make=make, checked_rows=(5,))


def best_case(n: int, k: int) -> Case:
    """Few values, so that most tie; some dead, and some rows with fewer than k alive."""

    def make(rows: int, dtype: torch.dtype, device: torch.device) -> Arguments:
        scores = torch.randint(-9, 9, (rows, n), device=device).float()
        scores[::2] = torch.randn((rows + 1) // 2, n, device=device)
        scores[::3] *= -0.0
        dead = torch.rand(rows, n, device=device) < torch.rand(rows, 1, device=device)
        scores[dead] = -torch.inf
        return scores, k, _pages(rows, n, -(-n // PER_BLOCK) + 3, device)

    return Case(
        op="best_rows", name=f"{k} of {n}", make=make, bytes_per_row=lambda size: 4 * n + 8 * k
    )


def _some_blocks(rows: int, n: int, block: int, keep: int, device: torch.device) -> Blocks:
    """Of every number up to `keep`, ascending."""
    index = torch.rand(rows, -(-n // block), device=device).argsort(1)[:, :keep].sort(1).values
    most = torch.randint(0, keep + 1, (rows, 1), device=device)
    index[torch.arange(index.shape[1], device=device) >= most] = -1
    return Blocks(index=index, rows=block)


def candidate_case(n: int, block: int, keep: int) -> Case:
    """Rows with few visible, and many that tie."""

    def make(rows: int, dtype: torch.dtype, device: torch.device) -> Arguments:
        counts = torch.randint(0, n + 1, (rows,), device=device)
        scores = torch.randn(rows, n, device=device)
        scores[::2] = scores[::2].round()
        scores[torch.arange(n, device=device) >= counts.unsqueeze(-1)] = -torch.inf
        return scores, counts, block, keep

    return Case(
        op="candidate_blocks",
        name=f"{keep} of {n} by {block}",
        make=make,
        bytes_per_row=lambda size: 4 * n + 8 * keep + 8,
    )


def score_blocks_case(
    heads: int, width: int, context: int, packing: str | None, block: int, keep: int
) -> Case:
    """Some blocks of a context, not all of whose rows are visible."""
    pages = -(-context // PER_BLOCK) + 3

    def make(rows: int, dtype: torch.dtype, device: torch.device) -> Arguments:
        keys = make_cache(width, packing, pages * PER_BLOCK, dtype, device)
        counts = torch.randint(0, context + 1, (rows,), device=device)
        queries = normal((rows, heads, width), dtype, device)
        weights = normal((rows, heads), dtype, device)
        keys, table = _alone(keys, _pages(rows, context, pages, device), counts)
        blocks = _some_blocks(rows, context, block, keep, device)
        return queries, weights, keys, table, counts, blocks

    return Case(
        op="score_blocks",
        name=f"{heads} heads of {width}, {keep} of {context} by {block} {packing or 'plain'}",
        make=make,
        bytes_per_row=lambda size: (
            heads * (width + 1) * size
            + stored_bytes(keep * block, width, packing) // 4
            + 4 * keep * block
        ),
        flops=lambda rows: rows * heads * width * keep * block // 2,  # a quarter is visible
        observe=_scores_observed,
        waits=True,
    )


def best_of_blocks_case(n: int, block: int, keep: int, k: int) -> Case:
    """Columns of missing blocks are dead."""

    def make(rows: int, dtype: torch.dtype, device: torch.device) -> Arguments:
        blocks = _some_blocks(rows, n, block, keep, device)
        scores = torch.randn(rows, keep * block, device=device).mul(4).round()
        scores[blocks.logical() < 0] = -torch.inf
        return scores, k, _pages(rows, n, -(-n // PER_BLOCK) + 3, device), blocks

    return Case(
        op="best_of_blocks",
        name=f"{k} of {keep} blocks of {block}",
        make=make,
        bytes_per_row=lambda size: 4 * keep * block + 8 * keep + 8 * k,
    )


def _observed(run: Run, arguments: Arguments) -> object:
    choice = run(*arguments)
    assert isinstance(choice, Choice)
    return torch.where(choice.is_finite, choice.token_ids, -1)


def highest_case(vocab: int, padding: int) -> Case:
    """Rows of a padded vocabulary; one in five holds a NaN or an infinity."""

    def make(rows: int, dtype: torch.dtype, device: torch.device) -> Arguments:
        logits = 4 * normal((rows, vocab + padding), dtype, device)[:, :vocab]
        logits[::5, vocab // 2] = torch.nan
        logits[5::10, vocab // 2] = torch.inf
        return (logits,)

    return Case(
        op="choose_highest",
        name=f"of {vocab}",
        make=make,
        bytes_per_row=lambda size: vocab * size + 9,
        observe=_observed,
    )


def rules_by_row(vocab: int, rows: int, short: int, device: torch.device) -> SamplingRules:
    """Rules of every kind in turn, in few combinations that repeat late."""

    def by_row(values: list[float], dtype: torch.dtype) -> Tensor:
        return torch.tensor(values, dtype=dtype, device=device).repeat(rows)[:rows].contiguous()

    narrowing = Narrowing(
        top_k=by_row([vocab, short, vocab, short, vocab // 2], torch.int64),
        top_p=by_row([0.9, 1.0, 0.5, 0.8, 0.95, 1.0, 1.0], torch.float64),
        min_p=by_row([0.0, 0.0, 0.1], torch.float64),
    )
    return SamplingRules(
        temperatures=by_row([0.7, 1.0, 0.0, 1.3], torch.float64),
        seeds=torch.randint(-(2**62), 2**62, (rows,), device=device),
        narrowing=narrowing,
    )


def choose_case(vocab: int, *, is_narrow: bool, short: int = 50) -> Case:
    """Temperatures and seeds differ by row; every kind of narrowing in turn, where there is one."""

    def make(rows: int, dtype: torch.dtype, device: torch.device) -> Arguments:
        rules = rules_by_row(vocab, rows, short, device)
        if not is_narrow:
            rules = replace(rules, narrowing=None)
        positions = torch.randint(0, 100_000, (rows,), device=device)
        return 3 * normal((rows, vocab), dtype, device), positions, rules

    return Case(
        op="choose_tokens",
        name=f"of {vocab}" + (", narrowed" if is_narrow else ""),
        make=make,
        bytes_per_row=lambda size: vocab * size + 9,
        observe=_observed,
    )
