"""Llama, Qwen3 and Qwen3-MoE directories against transformers, which wrote them."""

from dataclasses import replace

import pytest
import torch

from engine.batch import StepShape
from engine.cache.storage import CacheStorage
from engine.forward_bench import decode_batch
from engine.llm import LLM
from engine.models.causal_lm.model import CausalModel
from engine.models.causal_lm.weights import expected_shapes, open_weights
from engine.models.dummy_causal import DummyWeights
from engine.models.registry import open_checkpoint
from engine.models.single import SingleSequence
from engine.request import SamplingParams
from tests.fakes.causal import BASE, DOCUMENTS, causal_config

LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
    "rope_theta": 1000.0,
}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32}
CASES = {
    "llama": ("Llama", {}),
    "llama3_rope_and_biases": ("Llama", {"rope_parameters": LLAMA3, "attention_bias": True}),
    "qwen3_tied": ("Qwen3", {"head_dim": 16, "tie_word_embeddings": True}),
    "qwen3_yarn": ("Qwen3", {"head_dim": 16, "rope_parameters": YARN}),
    "llama_linear": ("Llama", {"rope_parameters": {"rope_type": "linear", "factor": 4.0}}),
    "qwen3_moe": (
        "Qwen3Moe",
        {
            "head_dim": 16,
            "num_experts": 6,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 24,
            "norm_topk_prob": True,
            "mlp_only_layers": [1],
        },
    ),
    "qwen3_moe_not_normalised": (
        "Qwen3Moe",
        {
            "head_dim": 8,
            "num_experts": 4,
            "num_experts_per_tok": 3,
            "moe_intermediate_size": 8,
            "decoder_sparse_step": 2,
        },
    ),
}


@pytest.fixture(scope="module", params=CASES)
def released(request, tmp_path_factory):
    """A random model of transformers, and the directory that it saved itself to in shards."""
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    name, changes = CASES[request.param]
    config = getattr(transformers, f"{name}Config")(**BASE, **changes, initializer_range=0.3)
    torch.manual_seed(0)
    model = getattr(transformers, f"{name}ForCausalLM")(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1:  # gains and biases would be ones and zeros
                parameter.add_(0.3 * torch.randn_like(parameter))
    directory = tmp_path_factory.mktemp("released")
    model.save_pretrained(directory, max_shard_size="40KB")
    return model, directory


def load(directory, dtype):
    config = open_checkpoint(directory).config
    with open_weights(directory, config, dtype=dtype, device="cpu") as weights:
        return CausalModel(config, weights, dtype=dtype)


def test_logits_are_those_of_transformers_whole_and_in_pieces(released):
    reference, directory = released
    ids = torch.randint(0, 97, (1, 150), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        expected = reference(ids).logits[0]
    model = load(directory, torch.float32)
    for cuts in ([150], [100, 1, 1, 48]):
        sequence = SingleSequence(model, capacity=192, dtype=torch.float32)
        pieces = [sequence.run(piece.tolist()) for piece in ids[0].split(cuts)]
        found = torch.cat(pieces)
        assert found.dtype == torch.float32
        assert (found - expected).abs().max() <= 1e-4


def test_greedy_text_is_that_of_transformers(released):
    reference, directory = released
    prompts = [
        torch.randint(0, 97, (n,), generator=torch.Generator().manual_seed(n)).tolist()
        for n in (40, 7)
    ]
    greedy = SamplingParams(temperature=0.0, max_tokens=64, ignore_eos=True)
    with LLM(str(directory), dtype="float64", max_num_batched_tokens=24, max_num_seqs=2) as llm:
        found = [list(done.token_ids) for done in llm.generate(prompts, greedy)]
    wide = reference.double()
    wide.set_experts_implementation("eager")  # its other products know no float64
    for prompt, token_ids in zip(prompts, found, strict=True):
        asked = torch.tensor([prompt])
        text = wide.generate(
            asked, attention_mask=torch.ones_like(asked), max_new_tokens=64, do_sample=False,
            eos_token_id=None, pad_token_id=0,
        )  # fmt: skip
        assert token_ids == text[0, len(prompt) :].tolist()
    reference.float()


@pytest.mark.parametrize("name", DOCUMENTS)
def test_padding_of_a_decode_step_changes_nothing(name):
    config = causal_config(DOCUMENTS[name])
    weights = DummyWeights(expected_shapes(config), torch.float64, torch.Generator().manual_seed(0))
    model = CausalModel(config, weights, dtype=torch.float64)

    def logits(sequences, context):
        batch = decode_batch(2, 70, "cpu")
        spare = sequences - 2
        table = torch.cat((torch.arange(4).view(2, 2), torch.full((spare, 2), 4)))
        each = torch.arange(sequences)
        batch = replace(
            batch,
            token_ids=torch.cat((batch.token_ids, torch.zeros(spare, dtype=torch.int64))),
            positions=torch.cat((torch.tensor([3, 69]), torch.zeros(spare, dtype=torch.int64))),
            sequence_index=each,
            query_start=tuple(range(sequences + 1)),
            context_length=(context - 1,) * sequences,
            block_table=torch.nn.functional.pad(table, (0, context // 64 - 2)),
            logit_rows=each,
            shape=StepShape(sequences=sequences, rows=1, context=context),
            live=each < 2,
        )
        caches = CacheStorage.allocate(
            model.cache_groups(max_backtrack=0), blocks=5, block_tokens=64, slots=1,
            dtype=torch.float64,
        )  # fmt: skip
        draw = torch.Generator().manual_seed(5)
        for tensor in caches.tensors.values():
            tensor.copy_(torch.randn(tensor.shape, generator=draw, dtype=tensor.dtype))
        return model.forward(batch, caches).logits[:2], caches.tensors["keys_values.2"][:256]

    alone, padded = logits(2, 128), logits(8, 1024)
    for found, expected in zip(padded, alone, strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)


def test_a_model_whose_experts_are_counted_on_the_host_is_not_captured():
    for name, document in DOCUMENTS.items():
        config = causal_config(document)
        draw = torch.Generator().manual_seed(0)
        weights = DummyWeights(expected_shapes(config), torch.float32, draw)
        model = CausalModel(config, weights, dtype=torch.float32)
        assert model.can_capture == (name != "qwen3_moe")
