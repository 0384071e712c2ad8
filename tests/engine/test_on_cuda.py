"""What only a CUDA device can show: the same texts as a processor's, and under every variant."""

import random
from dataclasses import replace

import pytest
import torch

from engine.accelerator.cuda import CudaGraphRecorder
from engine.config import EngineConfig
from engine.core import Engine
from engine.llm import LLM
from engine.models.dummy_causal import CausalDummySource
from engine.request import Request, SamplingParams
from engine.step_bench import VARIANTS
from kernels.cases import SMALL_CASES
from kernels.check import check
from tests.fakes.causal import DOCUMENTS, causal_config
from tests.fakes.serving import run, text

pytestmark = pytest.mark.cuda
GREEDY = SamplingParams(temperature=0.0, max_tokens=24, ignore_eos=True)


def texts(**config):
    with LLM("nano", cache_format="plain", **config) as llm:
        return said_by(llm)


def said_by(llm, texts=("def read(path):", "import", "a" * 99), lengths=(24, 24, 24)):
    prompts = [llm.tokenizer.encode(text) for text in texts]
    done = llm.generate(prompts, [replace(GREEDY, max_tokens=length) for length in lengths])
    assert [one.error for one in done] == [None] * len(prompts)
    return [one.token_ids for one in done]


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


def broken_off(monkeypatch, breaks_off):
    """Have some captures, by number, meet what no capture can hold; how many were begun."""
    begun, record = [], CudaGraphRecorder.record

    def recorded(self, work):
        begun.append(work)
        number = len(begun)

        def spoiled():
            results = work()
            if breaks_off(number):
                torch.cuda.synchronize()
            return results

        return record(self, spoiled)

    monkeypatch.setattr(CudaGraphRecorder, "record", recorded)
    return begun


@pytest.mark.parametrize("draft_length", [0, 5])
@pytest.mark.parametrize(
    ("breaks_off", "some_are_replayed"),
    [(lambda _: True, False), (lambda number: number == 1, True)],
)
def test_where_a_capture_fails_steps_run_as_they_are_and_say_the_same(
    draft_length, breaks_off, some_are_replayed, monkeypatch
):
    values = {"dtype": "float32", "cache_format": "plain", "draft_length": draft_length}
    lengths = (12, 24, 36)  # so that steps of one, of two and of four sequences are captured
    with LLM("nano", accelerator="cuda", graphs="off", **values) as llm:
        told = said_by(llm, lengths=lengths)
    begun = broken_off(monkeypatch, breaks_off)
    with LLM("nano", accelerator="cuda", **values) as llm:
        assert said_by(llm, lengths=lengths) == told
        stats = llm.stats()
    assert begun
    assert (stats.replayed_steps > 0) == some_are_replayed


SMALL_QWEN3 = CausalDummySource(causal_config(DOCUMENTS["qwen3"]))


def served_one_a_step(graphs, source, draft_length):
    """What prompts say that come one a step, and shapes of recorded steps that have chunks."""
    config = EngineConfig(
        model="nano", dtype="float32", cache_format="plain", accelerator="cuda",
        draft_length=draft_length, max_num_seqs=6, max_model_len=256, cache_tokens=2048,
        prefill_chunk_tokens=48, graphs=graphs,
    )  # fmt: skip
    target = Engine(config, source=source)
    draw, outputs = random.Random(0), []
    vocabulary = target.limits.facts.vocab_size
    for number in range(16):
        prompt = tuple(draw.choices(range(3, vocabulary), k=draw.randint(5, 90)))
        target.add_request(
            Request(request_id=str(number), prompt_token_ids=prompt, sampling=GREEDY)
        )
        outputs += target.step()
    outputs += run(target)
    recorded = target._runner._recorded
    programs = recorded._graphs._programs if recorded is not None else {}
    shapes = {key.shape for key, p in programs.items() if p.graph is not None and key.shape.chunks}
    return [text(outputs, str(number)) for number in range(16)], shapes


@pytest.mark.parametrize(("source", "draft_length"), [(None, 5), (SMALL_QWEN3, 0)])
def test_prompts_are_replayed_beside_what_decodes_and_say_the_same(source, draft_length):
    told, none = served_one_a_step("off", source, draft_length)
    found, shapes = served_one_a_step("auto", source, draft_length)
    assert found == told
    assert not none
    assert any(shape.sequences for shape in shapes)


@pytest.mark.parametrize("graphs", ["auto", "off"])
@pytest.mark.parametrize("draft_length", [0, 5])
def test_no_operation_of_a_step_makes_the_host_wait(draft_length, graphs):
    """Copies of preempted sequences neither: torch raises where an operation waits."""
    room = {"max_num_seqs": 2, "cache_tokens": 256, "swap_tokens": 512, "admission": "greedy"}
    with LLM("nano", accelerator="cuda", draft_length=draft_length, graphs=graphs, **room) as llm:
        for _ in range(2):  # compiles, and captures
            said_by(llm, texts=("a" * 99,) * 3, lengths=(80, 80, 80))
        torch.cuda.set_sync_debug_mode("error")
        try:
            said_by(llm, texts=("a" * 99,) * 3, lengths=(80, 80, 80))
        finally:
            torch.cuda.set_sync_debug_mode("default")
        assert llm.stats().swaps_out


def test_every_kernel_agrees_with_its_definition_at_small_sizes():
    torch.manual_seed(0)
    outcomes = list(check(torch.device("cuda"), rows=(0, 1, 5), reruns=2, cases=SMALL_CASES))
    assert len(outcomes) > 200
    assert [one for one in outcomes if not one.passed] == []
