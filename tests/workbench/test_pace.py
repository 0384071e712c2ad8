"""What a plan will take: from what is stored, and whether it fits this host."""

import dataclasses
from types import SimpleNamespace

import pytest

from experiments.errors import TargetError
from experiments.targets.null_server import at_once
from tests.fakes import records
from tests.fakes.openai_server import serving
from tests.fakes.sweeps import plan_of
from workbench import preflight, runs
from workbench.errors import DiskFullError, MemoryTooSmallError
from workbench.pace import stored_pace
from workbench.store import Store

SIZES = [{"product": {"batch_size": [1, 2]}}]


def memory(total, available):
    return lambda: SimpleNamespace(total=total, available=available)


def measured(store, **fields):
    job = runs.begin(runs.outlook(plan_of(axes=SIZES, **fields), store), store)
    list(job.records())
    return job.close()


def test_an_estimate_comes_from_stored_trials_of_the_same_kind_and_says_so(tmp_path):
    store = Store(tmp_path)
    before = runs.outlook(plan_of(axes=SIZES), store)
    assert before.pace.trials == 0
    assert "guessed" in before.pace.words
    run = measured(store)
    after = runs.outlook(plan_of(axes=SIZES, repeats=10), store)
    assert after.pace.trials == 2
    durations = [float(d["duration_s"]) for d in run.documents()]
    assert after.estimate_s == pytest.approx(20 * sum(durations) / 2 + after.engine_starts * 5.0), (
        "no two engines followed each other, so a start is guessed"
    )
    sizes = [sum(p.stat().st_size for p in run.files(t).values()) for t in run.trial_ids()]
    assert after.estimate_bytes == pytest.approx(20 * sum(sizes) / 2, abs=20)


def test_trials_of_another_protocol_or_model_teach_nothing(tmp_path):
    store = Store(tmp_path)
    measured(store)
    other = {"name": "quick", "measured_s": 0.03, "warm_up_per_slot": 0}
    assert stored_pace(plan_of(protocol=other), store).trials == 0
    assert stored_pace(plan_of(simulation={"ttft_s": 0.1}), store).trials == 0


def test_a_run_that_cannot_be_read_teaches_nothing(tmp_path):
    store = Store(tmp_path)
    run = measured(store)
    (run.folder / "run.json").write_text("{")
    assert stored_pace(plan_of(axes=SIZES), store).trials == 0


def test_the_time_of_a_start_is_the_gap_between_two_engines(tmp_path):
    items = [
        dataclasses.replace(
            records.record(draft_length=length),
            started_utc=f"2026-11-29T12:00:{at:02}+00:00",
            duration_s=3.0,
        )
        for at, length in ((0, 0), (13, 5))
    ]
    run = records.fill_store(tmp_path, items)
    same_kind = SimpleNamespace(document=lambda: run.plan)
    pace = stored_pace(same_kind, Store(tmp_path))
    assert (pace.trial_s, pace.start_s) == (3.0, 10.0)


def test_a_disk_without_room_for_the_estimate_is_told_before_anything_is_written(
    tmp_path, monkeypatch
):
    # mlcommons/endpoints 426
    monkeypatch.setattr(preflight, "free_bytes", lambda _: 1000)
    store = Store(tmp_path / "store")
    with pytest.raises(DiskFullError, match=r"1,000 bytes are free.*Nothing was written"):
        measured(store)
    assert not store.path.exists()


def test_weights_that_the_host_can_never_hold_are_told_before_anything_starts(
    tmp_path, monkeypatch
):
    weights = tmp_path / "model"
    weights.mkdir()
    (weights / "a.safetensors").write_bytes(b"0" * 600_000)
    monkeypatch.setattr(preflight.psutil, "virtual_memory", memory(1_000_000, 500_000))
    store = Store(tmp_path / "store")
    found = runs.outlook(plan_of(), store)
    (trial,) = found.trials
    facts = dataclasses.replace(trial.facts, accelerator="cpu", model=str(weights))
    for replicas, refused in ((1, False), (2, True)):
        point = dataclasses.replace(
            trial.point, engine={**trial.point.engine, "data_parallel_size": replicas}
        )
        one = dataclasses.replace(trial, facts=facts, point=point)
        agenda = SimpleNamespace(known=[one], at_most=1, notes=())
        looked = dataclasses.replace(found, agenda=agenda)
        assert "600,000 bytes" in preflight.memory_notes(looked)[0] or refused
        if refused:
            with pytest.raises(MemoryTooSmallError, match="1,200,000 bytes"):
                preflight.check_room(looked, store)
        else:
            preflight.check_room(looked, store)


STANDARD = {"name": "standard"}
LONG = {"name": "s", "kind": "synthetic", "prompt_tokens": 1024, "output_tokens": 256}


@pytest.mark.parametrize(("available", "said"), [(16e9, False), (1e9, True)])
def test_records_that_may_take_half_of_the_free_memory_are_told_with_their_bound(
    tmp_path, monkeypatch, available, said
):
    found = runs.outlook(plan_of(protocol=STANDARD, workloads=[LONG]), Store(tmp_path))
    monkeypatch.setattr(preflight.psutil, "virtual_memory", memory(32e9, available))
    preflight.check_room(found, Store(tmp_path))
    notes = preflight.memory_notes(found)
    assert len(notes) == said
    assert all("protocol.max_requests" in note and "GB" in note for note in notes)


def test_a_load_whose_records_no_memory_of_this_host_holds_is_refused(tmp_path, monkeypatch):
    load = {"kind": "closed", "batch_size": 100_000}
    wanted = plan_of(protocol=STANDARD, workloads=[LONG], load=load)
    monkeypatch.setattr(preflight.psutil, "virtual_memory", memory(32e9, 30e9))
    with pytest.raises(MemoryTooSmallError, match=r"the 1,000,000 requests .* 76\.8 GB"):
        runs.begin(runs.outlook(wanted, Store(tmp_path)), Store(tmp_path))


@pytest.mark.parametrize(("load", "said"), [(0.9, False), (1.1, True)])
def test_a_host_with_other_work_is_named_before_the_first_trial(monkeypatch, load, said):
    monkeypatch.setattr("os.getloadavg", lambda: (load, 0.0, 0.0))
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1})
    note = preflight.busy_note()
    assert (note is not None) is said
    assert note is None or "is 1.1 on 2 processors" in note


def test_a_server_that_is_not_there_or_serves_another_model_is_told_before_anything_is_written(
    tmp_path,
):
    store = Store(tmp_path / "store")
    http = {"model": "other", "api": "completions", "vocab_size": 512}
    with serving(at_once) as server:
        url = server.url
        found = runs.outlook(plan_of(target="http", http={**http, "url": url}), store)
        with pytest.raises(TargetError, match=r"http\.model: other.*serves null"):
            runs.begin(found, store)
    found = runs.outlook(plan_of(target="http", http={**http, "url": url}), store)
    with pytest.raises(TargetError, match="does not answer"):
        runs.begin(found, store)
    assert not store.run_ids()
