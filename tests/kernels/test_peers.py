"""What peers are called with, held to what their packages ask: stand-ins that compute it.

The calls and the rules of their arguments are those of sgl-flash-mla 1.0.0 and flashinfer 0.6.6.
"""

import sys
from dataclasses import replace
from types import ModuleType

import pytest
import torch

from kernels import formats
from kernels.attention.reference import KeyRows, attend, attend_cached
from kernels.cases_attention import attend_case
from kernels.cases_selection import choose_case
from kernels.formats import FP8_GROUP32, FP8_GROUP64_TAIL
from kernels.peers import PEERS

V4 = (FP8_GROUP64_TAIL, FP8_GROUP64_TAIL)
DECODE = "sgl-flash-mla"
DRAFTED = "sgl-flash-mla, 6 a sequence"
PREFILL = "sgl-flash-mla, prefill"
CPU = torch.device("cpu")


def bind(op, name, arguments):
    found = next(peer for peer in PEERS if (peer.op, peer.name) == (op, name))
    return found.bind(arguments)


def inputs(rows, *, heads=64, width=512, window=128, count=512, packing=V4, has_pages=True):
    torch.manual_seed(0)
    case = attend_case(heads, width, window, count, packing, has_pages=has_pages)
    return case.make(rows, torch.bfloat16, CPU)


def rows_of(pages):
    """Values of all rows of V4's pages [pages, rows, 1, 584]: a page's data, then its scales."""
    assert pages.dtype == torch.float8_e4m3fn
    assert pages.shape[1:] == (64, 1, 584)
    assert pages.stride()[1:] == (584, 584, 1), "the whole block must be contiguous"
    assert pages.stride(0) % 576 == 0
    held = pages.view(torch.uint8).flatten(1)  # [pages, 64 * 584]
    data, scales = held.split((64 * 576, 64 * 8), -1)
    rows = torch.cat((data.unflatten(-1, (64, 576)), scales.unflatten(-1, (64, 8))), -1)
    return formats.unpack(rows.flatten(0, 1), FP8_GROUP64_TAIL, 512, torch.float32)


def chosen_of(keys, index):
    """Rows that queries [n] chose; an index is a row or exactly -1."""
    assert index.dtype == torch.int32
    assert index.is_contiguous()
    assert index.shape[-1] % 64 == 0
    assert -1 <= int(index.min()) <= int(index.max()) < len(keys)
    visible = index >= 0
    rows = keys[index.clamp(min=0).long()].masked_fill(~visible.unsqueeze(-1), 0)
    return KeyRows(rows.float(), visible.unsqueeze(1))


class Schedule:
    shapes = None


def flash_mla_with_kvcache(
    q, k_cache, block_table, cache_seqlens, head_dim_v, tile_scheduler_metadata, num_splits=None,
    softmax_scale=None, causal=False, is_fp8_kvcache=None, indices=None, attn_sink=None,
    extra_k_cache=None, extra_indices_in_kvcache=None, topk_length=None, extra_topk_length=None,
    enable_batch_invariant=False, use_legacy=False, kv_format=None, descale_q=None, descale_k=None,
):  # fmt: skip
    assert use_legacy, "V4's rows are read by the legacy kernels alone"
    assert is_fp8_kvcache
    assert not causal
    assert head_dim_v == 512
    assert q.dtype == torch.bfloat16
    batch, each, heads, width = q.shape
    assert heads in (64, 128)
    assert width == 512
    assert indices.shape[:2] == extra_indices_in_kvcache.shape[:2] == (batch, each)
    assert attn_sink.dtype == torch.float32
    assert attn_sink.shape == (heads,)
    shapes = (q.shape, indices.shape, extra_indices_in_kvcache.shape)
    assert isinstance(tile_scheduler_metadata, Schedule)
    assert tile_scheduler_metadata.shapes in (None, shapes)
    tile_scheduler_metadata.shapes = shapes
    parts = [
        chosen_of(rows_of(k_cache), indices.flatten(0, 1)),
        chosen_of(rows_of(extra_k_cache), extra_indices_in_kvcache.flatten(0, 1)),
    ]
    out = attend(q.flatten(0, 1).unsqueeze(1), parts, attn_sink, softmax_scale)
    return out.view(q.shape), None


def flash_mla_sparse_fwd(
    q, kv, indices, sm_scale, d_v=512, attn_sink=None, topk_length=None, use_legacy=False,
    return_log2_lse=None,
):  # fmt: skip
    assert use_legacy
    assert q.dtype == kv.dtype == torch.bfloat16
    assert q.shape[1] in (64, 128)
    assert q.shape[2] == kv.shape[2] == d_v == 512
    assert kv.shape[1] == indices.shape[1] == 1
    assert len(indices) == len(q)
    assert attn_sink.dtype == torch.float32
    part = chosen_of(kv.squeeze(1), indices.squeeze(1))
    return attend(q.unsqueeze(1), [part], attn_sink, sm_scale).squeeze(1), None, None


@pytest.fixture
def flash_mla(monkeypatch):
    module = ModuleType("flash_mla")
    module.get_mla_metadata = lambda *args, **kwargs: (Schedule(), None)
    module.flash_mla_with_kvcache = flash_mla_with_kvcache
    module.flash_mla_sparse_fwd = flash_mla_sparse_fwd
    monkeypatch.setitem(sys.modules, "flash_mla", module)


@pytest.mark.parametrize(("name", "rows", "each"), [(DECODE, 3, 1), (DRAFTED, 12, 6)])
@pytest.mark.usefixtures("flash_mla")
def test_flash_mla_is_asked_for_what_the_operation_attends_to(name, rows, each):
    queries, own, chosen, sink, scale, turn = inputs(rows)
    work = bind("attend_turned", name, (queries, own, chosen, sink, scale, turn))
    out, _ = work()
    assert out.shape == (rows // each, each, 64, 512)
    exact = attend_cached(queries.float(), own, chosen, sink, scale)
    torch.testing.assert_close(out.flatten(0, 1).float(), exact, rtol=1e-2, atol=1e-2)


@pytest.mark.usefixtures("flash_mla")
def test_flash_mla_prefills_with_unpacked_rows(monkeypatch):
    monkeypatch.setattr("kernels.peers_attention.PROMPT_ROWS", 5)
    queries, own, chosen, sink, scale, turn = inputs(5)
    work = bind("attend_turned", PREFILL, (queries, own, chosen, sink, scale, turn))
    out, *_ = work()
    exact = attend_cached(queries.float(), own, chosen, sink, scale)
    torch.testing.assert_close(out.float(), exact, rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        (DRAFTED, {"rows": 8}),
        (PREFILL, {"rows": 8}),
        (DECODE, {"packing": (FP8_GROUP32, FP8_GROUP32)}),
        (DECODE, {"packing": (None, None), "has_pages": False}),
        (DECODE, {"has_pages": False}),
        (DECODE, {"heads": 8}),
        (DECODE, {"width": 128}),
        (DECODE, {"window": 26}),
        (DECODE, {"count": 500}),
        (DECODE, {"count": 0}),
    ],
)
@pytest.mark.usefixtures("flash_mla")
def test_flash_mla_is_left_out_where_it_cannot_do_a_case(name, changes):
    arguments = inputs(**{"rows": 2, **changes})
    assert bind("attend_turned", name, arguments) is None


@pytest.mark.usefixtures("flash_mla")
def test_flash_mla_gets_rows_that_nobody_chose_as_exactly_minus_one():
    queries, own, chosen, *others = inputs(2)
    index = torch.where(chosen.index < 0, -7, chosen.index)
    work = bind("attend_turned", DECODE, (queries, own, replace(chosen, index=index), *others))
    assert work is not None  # the stand-in has refused others


def top_k_top_p_sampling_from_logits(
    logits, top_k, top_p, indices=None, filter_apply_order="top_k_first", deterministic=True,
    generator=None, check_nan=False, seed=None, offset=None,
):  # fmt: skip
    rows, vocab = logits.shape
    assert logits.dtype == torch.float32
    assert logits.isfinite().all()
    assert top_k.shape == top_p.shape == (rows,)
    assert top_k.dtype == torch.int32
    assert top_p.dtype == torch.float32
    assert 0 < int(top_k.min()) <= int(top_k.max()) < vocab
    for one in (seed, offset):
        assert one.dtype == torch.int64
        assert one.shape == (1,)
        assert one.device == logits.device
    ordered, ids = logits.sort(-1, descending=True)
    rank = torch.arange(vocab)
    share = ordered.masked_fill(rank >= top_k.unsqueeze(-1), -torch.inf).softmax(-1)
    kept = (share.cumsum(-1) - share) < top_p.unsqueeze(-1)
    drawn = torch.multinomial(share * kept, 1)
    return ids.gather(-1, drawn).squeeze(-1).int()


@pytest.fixture
def flashinfer(monkeypatch):
    module, sampling = ModuleType("flashinfer"), ModuleType("flashinfer.sampling")
    sampling.top_k_top_p_sampling_from_logits = top_k_top_p_sampling_from_logits
    monkeypatch.setitem(sys.modules, "flashinfer", module)
    monkeypatch.setitem(sys.modules, "flashinfer.sampling", sampling)


@pytest.mark.usefixtures("flashinfer")
def test_flashinfer_draws_within_what_rows_leave_and_the_best_where_there_is_no_temperature():
    torch.manual_seed(0)
    arguments = choose_case(300, is_narrow=True, short=2).make(40, torch.bfloat16, CPU)
    logits, _, rules = arguments
    tokens = bind("choose_tokens", "flashinfer", arguments)()
    rank = (logits > logits.gather(-1, tokens.long().unsqueeze(-1))).sum(-1)
    assert (rank < rules.narrowing.top_k).all()
    assert (rank[rules.temperatures == 0] == 0).all()
    assert (rank > 0).any()


@pytest.mark.usefixtures("flashinfer")
def test_flashinfer_is_left_out_where_nothing_is_narrowed():
    arguments = choose_case(300, is_narrow=False).make(2, torch.bfloat16, CPU)
    assert bind("choose_tokens", "flashinfer", arguments) is None
