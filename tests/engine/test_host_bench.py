"""What the host does for a step, counted where no device disturbs it."""

import pytest

from engine.host_bench import HostSteps, main, measure


def steps(requests, **values):
    return HostSteps(requests=requests, steps=20, **{"draft_length": 0, "graphs": "auto", **values})


@pytest.mark.parametrize(("draft_length", "most"), [(0, 12), (3, 14)])
def test_one_more_decoding_sequence_costs_the_host_few_calls(draft_length, most):
    few, many = (steps(count, draft_length=draft_length).count_calls() for count in (16, 48))
    assert 0 < many - few <= 32 * most


def test_a_bench_of_the_host_times_replayed_steps():
    host = steps(3)
    for _ in range(8):
        _, outputs = host.step()
        assert [len(output.token_ids) for output in outputs] == [1, 1, 1]
    stats = host.engine.stats()
    assert stats.replayed_steps >= 8
    assert (stats.running, stats.batch_sequences) == (3, 3)


def test_stages_add_up():
    stages, calls = measure(requests=2, draft_length=1, steps=3)
    assert calls > 0
    total = stages["plan"] + stages["stage"] + stages["settle"]
    assert stages["all"] == pytest.approx(total)
    assert all(len(us) == 3 and us.min() > 0 for us in stages.values())


def test_a_line_for_each_number_of_requests(capsys, monkeypatch):
    monkeypatch.setattr("engine.host_bench.calm_collector", lambda: None)  # it is for a process
    main(["--requests", "1", "--requests", "2", "--steps", "2", "--graphs", "off"])
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in lines] == ["1 requests", "2 requests"]
