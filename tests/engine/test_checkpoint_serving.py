from engine.llm import LLM
from engine.make_checkpoint import make_checkpoint
from engine.request import SamplingParams


def test_a_checkpoint_directory_is_served_with_and_without_drafts(tmp_path):
    directory = make_checkpoint("toy", seed=0, directory=tmp_path / "toy")
    params = SamplingParams(temperature=0.0, max_tokens=6, ignore_eos=True)
    found = []
    for draft_length in (0, 5):
        with LLM(directory, dtype="float64", draft_length=draft_length, max_num_seqs=4) as model:
            found.append([c.token_ids for c in model.generate([[72, 105], [33] * 50], params)])
    assert found[0] == found[1]
    assert [len(ids) for ids in found[0]] == [6, 6]
