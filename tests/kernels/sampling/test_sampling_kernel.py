"""The kernels that draw tokens, cut small so that each of their ways is taken."""

import pytest

from tests.fakes.interpreter import INTERPRETED, run

DRAWN = (
    INTERPRETED
    + """
from triton.language import constexpr
from kernels.sampling import reference, triton_cuda, triton_few, triton_nucleus
from kernels.sampling.reference import Narrowing, SamplingRules
triton_cuda.PART = triton_cuda.STEP = 256
triton_cuda.ROOM, triton_cuda.GROUP = 128, 16
triton_few.FEW = constexpr(32)

taken = set()
def watched(module, name):
    way = getattr(module, name)
    def run(*given):
        taken.add(name)
        return way(*given)
    setattr(module, name, run)

ways = [(triton_few, name) for name in ("draw_ranked", "draw_held", "gather", "kth_of_row")]
ways += [(triton_nucleus, name) for name in ("kth_between", "draw_on")]
ways += [(triton_cuda, name) for name in ("draw", "draw_chain", "draw_of_few", "store_pivots")]
for way in ways:
    watched(*way)

def of(values, dtype=torch.float64):
    return torch.tensor(values, dtype=dtype)

VOCAB = 1111  # odd, and no multiple of a part
# Few and many kept by top-k, ties that overflow what is held, nuclei wide and narrow, both.
kinds = [
    (1.0, VOCAB, 1.0, 0.0), (0.0, 5, 0.5, 0.0), (1.3, 20, 1.0, 0.0), (0.7, 60, 0.9, 0.0),
    (1.0, VOCAB, 0.99, 0.0), (1.0, VOCAB, 0.2, 0.0), (1.0, 600, 0.9, 0.0), (1.0, 600, 1.0, 0.0),
    (1.0, VOCAB, 1.0, 0.3), (1e-4, VOCAB, 0.9, 0.0), (1.0, 1, 1.0, 0.0), (9.0, 1110, 0.7, 0.01),
    (2.0, 100, 0.5, 0.0), (1.0, 90, 0.7, 0.0), (3.0, 80, 0.6, 0.0),
]
rows = len(kinds)
temperature, top_k, top_p, min_p = map(list, zip(*kinds))
rules = SamplingRules(
    temperatures=of(temperature), seeds=torch.randint(-(2**62), 2**62, (rows,)),
    narrowing=Narrowing(top_k=of(top_k, torch.int64), top_p=of(top_p), min_p=of(min_p)),
)
kept = torch.arange(0, VOCAB, 2)
for name, logits in (
    ("peaked", 8 * torch.randn(rows, VOCAB)),
    ("rounded", (2 * torch.randn(rows, VOCAB)).round()),
    ("masked", torch.randn(rows, VOCAB).index_fill(1, kept, -torch.inf)),
    ("strided", torch.randn(rows, VOCAB + 9)[:, :VOCAB]),
):
    positions = 10**6 + torch.arange(rows)
    found = triton_cuda.choose_tokens(logits, positions, rules)
    exact = reference.choose_tokens(logits, positions, rules)
    assert torch.equal(found.token_ids, exact.token_ids), (name, found, exact)
    assert found.is_finite.all()
    highest = triton_cuda.choose_highest(logits)
    assert torch.equal(highest.token_ids, logits.argmax(-1)), name
bad = torch.randn(4, VOCAB)
bad[0, 3], bad[1, 1110], bad[2] = torch.nan, torch.inf, -torch.inf
some = SamplingRules(temperatures=of([0.0, 1.0, 1.0, 1.0]), seeds=torch.arange(4))
chosen = triton_cuda.choose_tokens(bad, torch.arange(4), some)
for found in (triton_cuda.choose_highest(bad), chosen):
    assert found.is_finite.tolist() == [False, False, False, True], found
    assert 0 <= int(found.token_ids.min()) and int(found.token_ids.max()) < VOCAB
assert taken == {name for _, name in ways}, taken
print("agree")
"""
)


def test_every_way_of_the_kernels_draws_the_tokens_of_the_definition():
    pytest.importorskip("triton", reason="triton is not installed")
    assert "agree" in run(DRAWN, TRITON_INTERPRET="1")
