"""What only a CUDA device can show: the same texts as a processor's, and under every variant."""

import pytest
import torch

from engine.llm import LLM
from engine.request import SamplingParams
from engine.step_bench import VARIANTS
from kernels.cases import SMALL_CASES
from kernels.check import check

pytestmark = pytest.mark.cuda
GREEDY = SamplingParams(temperature=0.0, max_tokens=24, ignore_eos=True)


def texts(**config):
    with LLM("nano", cache_format="plain", **config) as llm:
        prompts = [llm.tokenizer.encode(text) for text in ("def read(path):", "import", "a" * 99)]
        return [one.token_ids for one in llm.generate(prompts, GREEDY)]


@pytest.mark.parametrize("draft_length", [0, 5])
def test_a_device_says_in_float64_what_a_processor_says(draft_length):
    told = [texts(dtype="float64", draft_length=draft_length, accelerator=kind)
            for kind in ("cpu", "cuda")]  # fmt: skip
    assert told[0] == told[1]


@pytest.mark.parametrize("draft_length", [0, 5])
def test_overlap_and_graphs_change_no_text_in_float32(draft_length):
    told = {
        name: texts(dtype="float32", draft_length=draft_length, accelerator="cuda", **variant)
        for name, variant in VARIANTS.items()
    }
    first = next(iter(told.values()))
    assert {name for name, text in told.items() if text != first} == set()


def test_every_kernel_agrees_with_its_definition_at_small_sizes():
    torch.manual_seed(0)
    outcomes = list(check(torch.device("cuda"), rows=(0, 1, 5), reruns=2, cases=SMALL_CASES))
    assert len(outcomes) > 200
    assert [one for one in outcomes if not one.passed] == []
