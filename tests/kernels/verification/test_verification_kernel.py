"""The kernels that verify drafts, cut small so that rows have several parts."""

import pytest

from tests.fakes.interpreter import INTERPRETED, run

VERIFIED = (
    INTERPRETED
    + """
from dataclasses import replace
from kernels.cases_selection import rules_by_row
from kernels.sampling import triton_cuda as sampling
from kernels.verification import reference, triton_cuda
from kernels.verification.reference import Drafts
sampling.PART = sampling.STEP = 256
sampling.ROOM, sampling.GROUP = 128, 16

VOCAB, SEQUENCES = 611, 8  # odd, and no multiple of a part
narrow = rules_by_row(VOCAB, SEQUENCES, 20, torch.device("cpu"))
lengths = set()
for rows in (1, 4):
    for logits in (
        3 * torch.randn(SEQUENCES, rows, VOCAB),
        torch.randn(SEQUENCES, rows, VOCAB).round(),
        torch.randn(SEQUENCES, rows, VOCAB + 9)[..., :VOCAB],
    ):
        logits[3, 0, 5], logits[4, rows - 1, 610], logits[5, rows // 2] = (
            torch.nan, torch.inf, -torch.inf
        )
        first = 10**6 + 7 * torch.arange(SEQUENCES)
        for rules in (None, replace(narrow, narrowing=None), narrow):
            guesses = torch.randint(0, VOCAB, (SEQUENCES, rows - 1))
            counts = torch.randint(0, rows, (SEQUENCES,))
            drafts = Drafts(guesses=guesses, counts=counts)
            chosen = reference.verify(logits, drafts, first, rules).token_ids[:, :-1]
            right = torch.rand(SEQUENCES, rows - 1) < 0.8
            drafts = Drafts(guesses=torch.where(right, chosen, guesses), counts=counts)
            exact = reference.verify(logits, drafts, first, rules)
            for found in (triton_cuda.verify, triton_cuda.verify_apart):
                verdict = found(logits, drafts, first, rules)
                assert torch.equal(verdict.row, exact.row), (found, rows, rules)
            lengths |= set(exact.accepted.tolist())
assert lengths == {0, 1, 2, 3}, lengths
print("agree")
"""
)


def test_a_verdict_is_that_of_the_definition_number_by_number():
    pytest.importorskip("triton", reason="triton is not installed")
    assert "agree" in run(VERIFIED, TRITON_INTERPRET="1")
