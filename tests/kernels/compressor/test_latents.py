"""Writing global rows against the steps one by one."""

import torch

from kernels.cache_ops.reference import CachedRows, RowNorm
from kernels.compressor.reference import GlobalRows, Pairs, pool_pairs, write_latents
from kernels.norm.reference import rms_norm
from kernels.rotary.reference import frequencies, rotate, rotation

WIDTH = 8


def write(lengths, tokens):
    """One sequence in steps of some lengths; its rows by number, and what each step returned."""
    cache = CachedRows(tensor=torch.full((20, WIDTH), torch.nan).double(), width=WIDTH)
    norm = RowNorm(weight=torch.rand(WIDTH).double() + 0.5, eps=1e-6)
    ring = max(lengths) + 1
    tails = torch.full((ring, 2 * WIDTH), torch.nan).double()
    freqs, done, latents = frequencies(4, 100.0), 0, []
    for length in lengths:
        positions = torch.arange(done, done + length)
        closes = positions % 2 == 1
        pairs = Pairs(
            tails=tails,
            old=torch.tensor([(done - 1) % ring]),
            previous=torch.arange(length),  # the old one, then the rows of the step
            keep=positions % ring,
        )
        into = GlobalRows(
            cache=cache,
            where=torch.where(closes, positions // 2, -1),
            turn=rotation(positions - 1, freqs),
        )
        step = tokens[done : done + length]
        latents.append(write_latents(step, pairs, norm, into, torch.float64))
        done += length
    return cache, torch.cat(latents), norm


def test_pairs_are_pooled_across_steps_of_any_length():
    tokens = torch.randn(12, 2 * WIDTH).double()
    for lengths in ([12], [1] * 12, [3, 4, 5], [5, 1, 6], [2, 2, 8]):
        cache, latents, norm = write(lengths, tokens)
        pooled = rms_norm(pool_pairs(tokens[0::2], tokens[1::2]), norm.weight, norm.eps)
        torch.testing.assert_close(latents[1::2], pooled)
        assert not latents[0::2].any()
        turn = rotation(torch.arange(0, 12, 2), frequencies(4, 100.0))
        torch.testing.assert_close(cache.tensor[:6], rotate(pooled, turn))
        assert cache.tensor[6:].isnan().all()


def test_single_rows_are_normed_stored_and_returned():
    cache = CachedRows(tensor=torch.zeros(4, WIDTH).double(), width=WIDTH)
    norm = RowNorm(weight=torch.ones(WIDTH).double(), eps=1e-6)
    turn = rotation(torch.tensor([5, 6]), frequencies(4, 100.0))
    x = torch.randn(2, WIDTH).double()
    into = GlobalRows(cache=cache, where=torch.tensor([3, -1]), turn=turn)
    latents = write_latents(x, None, norm, into, torch.float64)
    normed = rms_norm(x, norm.weight, norm.eps)
    torch.testing.assert_close(latents[0], normed[0])
    assert not latents[1].any()
    torch.testing.assert_close(cache.tensor[3], rotate(normed, turn)[0])
    assert not cache.tensor[:3].any()
