import re

from engine.stats import EngineStats, prometheus_text


def test_two_engines_add_up():
    one = EngineStats(running=1, plan_s=0.5, wasted_steps=2)
    both = one + EngineStats(running=2, plan_s=0.25)
    assert (both.running, both.plan_s, both.wasted_steps) == (3, 0.75, 2)


def test_prometheus_reads_every_field_with_its_type_and_help():
    text = prometheus_text(EngineStats(waiting=3, preemptions=2, plan_s=0.5, blocks_total=9))
    lines = text.splitlines()
    assert "engine_waiting 3" in lines
    assert "# TYPE engine_waiting gauge" in lines
    assert "engine_preemptions_total 2" in lines
    assert "# TYPE engine_preemptions_total counter" in lines
    assert "engine_plan_seconds_total 0.5" in lines
    assert "engine_blocks 9" in lines
    assert text.endswith("\n")
    samples = [line for line in lines if not line.startswith("#")]
    assert len(samples) == len({line.split()[0] for line in samples}) == len(vars(EngineStats()))
    for line in samples:
        name = line.split()[0]
        assert re.fullmatch("[a-z_]+", name)
        assert any(h.startswith(f"# HELP {name} ") and h.endswith(".") for h in lines)
