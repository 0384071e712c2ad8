"""Arms that must give the same greedy tokens, held against each other when a run is read."""

import dataclasses
import json
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

import workbench as wb
from experiments.outputs import asked, fingerprints, kept
from experiments.records import Point, RequestRecord, TrialId, TrialState
from tests.fakes.records import facts, fill_store, record
from workbench.agreement import ROUNDING_FLIPS, agreements
from workbench.judged import judged, violations
from workbench.store import Store
from workbench.trial_files import document

ENGINE = {
    "model": "toy", "dtype": "float32", "accelerator": "cpu", "cache_format": "plain",
    "replay_mode": "compact", "replay_keep_tokens": 44, "draft_length": 0, "data_parallel_size": 1,
}  # fmt: skip
PROMPTS = 4
TOKENS = (5, 6, 7, 8, 9, 10)


def arm(trial_id, *, outputs=None, keep=10_000, workload=None, checkpoint="c0ffee", **engine):
    """A sound trial whose request k answered prompt k with `outputs[k]`, else with TOKENS."""
    answers = [(outputs or {}).get(k, TOKENS) for k in range(PROMPTS)]
    requests = tuple(answered(k, ids) for k, ids in enumerate(answers))
    return dataclasses.replace(
        record(),
        trial_id=TrialId(trial_id),
        point=Point(
            axes={},
            engine={**ENGINE, **engine},
            workload={"batch_size": 1, **(workload or {})},
            checkpoint=checkpoint,
        ),
        requests=kept(requests, keep),
        outputs=fingerprints(requests, 0.0),
    )


def answered(index, ids, **fields):
    values = {
        "request_id": f"r{index}",
        "index": index,
        "intended_s": 0.0,
        "dispatched_s": 0.0,
        "sent_s": 0.0,
        "chunks": (),
        "ended_s": 1.0,
        "finish_reason": "length",
        "error": None,
        "prompt_tokens": 3,
        "output_tokens": len(ids),
        "requested_output_tokens": len(TOKENS),
        "exact_output_length": True,
        "text_hash": f"{abs(hash(ids)):016x}"[:16],
        "prompt_hash": f"prompt {index}",
        "output_token_ids": ids,
    }
    return RequestRecord(**{**values, **fields})


def read(arms, limit="by_precision"):
    """The judged documents by trial id; ids come from the records as from their files."""
    ids = {one.trial_id: dict(map(kept_ids, one.requests)) for one in arms}
    ids = {name: {k: v for k, v in found.items() if v} for name, found in ids.items()}
    plan = {"gates": {"agreement": limit}}
    found = judged([document(one) for one in arms], plan, ids.__getitem__)
    return {one["trial_id"]: one for one in found}


def kept_ids(request):
    key = (request.prompt_hash, request.requested_output_tokens, request.exact_output_length)
    return asked(*key), request.output_token_ids


def gate(found):
    return next((g for g in found["gates"] if g["name"] == "agreement"), None)


def test_arms_that_agree_say_with_whom_and_stay_valid():
    found = read([arm("a"), arm("b", draft_length=5)])
    assert found["b"]["agreement"]["reference"] == "a"
    assert found["b"]["metrics"]["equal_outputs"]["value"] == 1.0
    assert found["b"]["metrics"]["token_flip_rate"] == {
        "value": 0.0, "n": PROMPTS * len(TOKENS), "low": 0.0, "reason": None, "basis": None,
        "high": pytest.approx(0.138, abs=0.001),
    }  # fmt: skip
    assert gate(found["b"])["passed"]
    assert found["b"]["state"] == "ok"
    assert gate(found["a"]) is None  # the reference is held against nobody
    assert "no other trial" in found["a"]["metrics"]["equal_outputs"]["reason"]


def test_one_flipped_token_makes_an_exact_arm_invalid_and_says_where():
    found = read([arm("a"), arm("b", draft_length=5, outputs={2: (5, 6, 7, 1, 2, 3)})])["b"]
    assert found["state"] == "invalid"
    assert found["reason"].startswith("agreement: 1 of 4 greedy outputs differ from trial a")
    assert "the earliest at token 4" in found["reason"]
    assert found["agreement"]["first_difference"] == 3
    flips = found["metrics"]["token_flip_rate"]
    assert flips["value"] == pytest.approx(1 / (3 * 6 + 4))
    assert flips["n"] == 22


def test_mask_is_the_oracle_of_compact_whatever_their_order():
    arms = [arm("a", replay_mode="compact"), arm("z", replay_mode="mask", draft_length=5)]
    assert read(arms)["a"]["agreement"]["reference"] == "z"
    assert read(arms)["z"]["agreement"]["reference"] is None


def test_replay_off_is_a_reported_flip_rate_and_never_a_gate():
    changed = dict.fromkeys(range(PROMPTS), (5, 6, 1, 1, 1, 1))
    found = read([arm("full", replay_mode="off"), arm("cut", outputs=changed)])["cut"]
    assert found["state"] == "ok"
    assert gate(found) is None
    assert found["agreement"]["off_reference"] == "full"
    assert found["metrics"]["token_flip_rate_off"]["value"] == pytest.approx(4 / 12)


@pytest.mark.parametrize(
    "other",
    [
        {"dtype": "bfloat16"}, {"cache_format": "released"}, {"accelerator": "cuda"},
        {"replay_keep_tokens": 128}, {"checkpoint": "another"},
    ],
)  # fmt: skip
def test_arms_of_other_numerics_are_not_held_against_each_other(other):
    found = read([arm("a"), arm("b", outputs={0: (1,) * 6}, **other)])["b"]
    assert found["state"] == "ok"
    assert gate(found) is None


def test_rounding_may_flip_a_few_tokens_on_a_device_and_not_many():
    device = {"dtype": "bfloat16", "accelerator": "cuda", "cache_format": "released"}
    late = {0: (*TOKENS[:5], 1)}
    few, many = (
        read([arm("a", **device), arm("b", **device, draft_length=1, outputs=outputs)])["b"]
        for outputs in (late, dict.fromkeys(range(PROMPTS), (1,) * 6))
    )
    assert gate(few)["limit"] == ROUNDING_FLIPS
    assert few["state"] == "ok"  # 1 flip of 24 tokens: may be 2 %, may be more
    assert not gate(few)["judged"]
    assert "too few tokens to say" in gate(few)["message"]
    assert many["state"] == "invalid"
    assert many["metrics"]["token_flip_rate"]["value"] == 1.0
    allowed = [arm("a", **device), arm("b", **device, draft_length=1, outputs=late)]
    assert gate(read(allowed, limit=0.05)["b"])["judged"]
    assert gate(read(allowed, limit=None)["b"]) is None


def test_outputs_whose_ids_were_not_kept_are_told_apart_but_not_measured():
    arms = [arm("a", keep=0), arm("b", draft_length=1, keep=0, outputs={1: (1,) * 6})]
    exact = read(arms)["b"]
    assert exact["state"] == "invalid"
    assert exact["metrics"]["equal_outputs"]["value"] == 0.75
    assert "keep_output_tokens" in exact["metrics"]["token_flip_rate"]["reason"]
    rough = read(arms, limit=0.02)["b"]
    assert rough["state"] == "ok"
    assert not gate(rough)["judged"]


def test_loads_that_share_no_prompt_are_not_compared():
    other = dataclasses.replace(arm("b", draft_length=3), outputs=("abcdef012345-00000000-6",))
    assert read([arm("a"), other])["b"]["agreement"]["reference"] is None


def test_an_output_that_ends_early_differs_at_its_end():
    found = read([arm("a"), arm("b", draft_length=1, outputs={0: TOKENS[:4]})])["b"]
    assert found["agreement"]["first_difference"] == 4


@given(st.permutations(range(6)), st.integers(0, 5))
def test_references_stand_earlier_in_one_order_and_never_in_a_loop(order, seed):
    rng = random.Random(seed)
    arms = [
        arm(f"t{k}", draft_length=rng.randrange(3), replay_mode=rng.choice(["mask", "compact"]))
        for k in range(6)
    ]
    documents = [document(arms[k]) for k in order]
    found = agreements(documents, "by_precision", lambda _: {})
    references = {name: a.must.reference for name, a in found.items() if a.must}
    assert len(references) == 5  # all asked the same: one reference for all
    assert len(set(references.values())) == 1
    assert set(references.values()).isdisjoint(references)


@pytest.mark.parametrize("outputs", ["nonsense", ["x"], [1, None, "zz-1-2"], {"a": 1}, None])
def test_damaged_fingerprints_are_taken_for_none(outputs):
    broken = {**document(arm("a")), "outputs": outputs}
    assert agreements([broken], "by_precision", lambda _: {}) == {}


def test_ids_are_kept_up_to_a_bound_and_never_of_the_warm_up():
    warm = answered(9, TOKENS, warm_up=True)
    found = kept((warm, *(answered(k, TOKENS) for k in range(3))), 13)
    assert [r.output_token_ids is not None for r in found] == [False, True, True, False]
    assert all(r.text_hash for r in found)


def test_sampled_outputs_are_not_compared():
    assert fingerprints([answered(0, TOKENS)], temperature=0.7) == ()


@pytest.fixture
def violated(tmp_path):
    """A stored run in which arm `b` flips a token and arm `c` does not."""
    bad = arm("b", draft_length=3, outputs={0: (1,) * 6})
    return fill_store(tmp_path, [arm("a"), bad, arm("c", draft_length=5)])


def test_a_violated_agreement_is_invalid_wherever_the_run_is_read(violated):
    points = violated.points().set_index("trial_id")
    assert points["valid"].to_dict() == {"a": True, "b": False, "c": True}
    assert points.loc["b", "reason"].startswith("agreement: ")
    assert points.loc["c", "agreement.reference"] == "a"
    assert violated.trial("b").state is TrialState.INVALID
    assert violated.trial("b").gates[-1].name == "agreement"
    assert violated.trial("c").metrics["equal_outputs"].value == 1.0
    assert violated.summary.counts[TrialState.INVALID] == 1
    x, y = (wb.Axis(metric=name, direction="max") for name in ("tok_s_user", "output_tok_s"))
    front = wb.pareto(violated.points(), x, y)
    assert "b" not in front.members


def test_the_end_of_a_run_names_the_arms_that_disagree(violated):
    (line,) = violations(violated.judged())
    assert line.startswith("trial b is invalid: agreement: 1 of 4 greedy outputs differ")


def test_what_is_stored_stays_as_it_was_measured(violated):
    told = json.loads((violated.folder / "trials" / "b" / "trial.json").read_text())
    assert told["state"] == "ok"
    assert {d["trial_id"]: d["state"] for d in violated.documents()}["b"] == "ok"


def test_a_better_reference_that_comes_later_is_taken(tmp_path):
    store = Store(tmp_path)
    with store.create(facts(2)) as writer:
        writer.append(arm("b", draft_length=3))
        run = store.run(writer.run.run_id)
        assert run.trial("b").metrics["equal_outputs"].value is None
        writer.append(arm("a", draft_length=3, replay_mode="mask"))
        assert run.refresh().points().set_index("trial_id").loc["b", "agreement.reference"] == "a"


def test_arms_are_held_against_the_reference_and_never_refused():
    other = {0: (5, 6, 7, 0, 0, 0), 2: (0, 0, 0, 0, 0, 0)}
    ours = arm("ours", arm="ours", draft_length=0)
    theirs = arm("theirs", arm="theirs", outputs=other)
    documents = [document(one) for one in (theirs, ours)]
    ids = {one.trial_id: dict(map(kept_ids, one.requests)) for one in (ours, theirs)}
    plan = {"reference": "ours"}
    found = {d["trial_id"]: d for d in judged(documents, plan, ids.__getitem__)}
    told = found["theirs"]
    assert told["state"] == TrialState.OK
    assert told["metrics"]["equal_outputs_arm"]["value"] == 2 / PROMPTS
    assert told["metrics"]["token_flip_rate_arm"]["value"] == 2 / (6 + 4 + 6 + 1)
    assert told["agreement"]["arm_reference"] == "ours"
    assert told["agreement"]["arm_first_difference"] == 0
    assert told["metrics"]["equal_outputs"]["value"] is None  # other engines need not agree
    assert found["ours"]["metrics"]["equal_outputs_arm"]["value"] is None
    assert found["ours"]["agreement"]["arm_reference"] is None


def test_an_arm_that_answers_in_text_alone_is_not_called_different():
    ours = arm("ours", arm="ours")
    theirs = arm("theirs", arm="theirs", outputs=dict.fromkeys(range(PROMPTS), (0,)))
    documents = [document(one) for one in (ours, theirs)]
    ids = {"ours": dict(map(kept_ids, ours.requests)), "theirs": {}}
    [_, told] = judged(documents, {"reference": "ours"}, ids.__getitem__)
    assert told["metrics"]["equal_outputs_arm"]["value"] is None
    assert "ids were not kept" in told["metrics"]["token_flip_rate_arm"]["reason"]
