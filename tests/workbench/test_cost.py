"""What tokens cost: by a named table, for devices with a price, and never 0 for the others."""

import numpy as np
import pandas as pd
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

import workbench as wb
from tests.fakes.records import fill_store
from workbench.cli import app
from workbench.cost import COST_METRICS, FACTS, Host, with_cost
from workbench.errors import PriceError
from workbench.prices import BUILT_IN, EXAMPLE, load_prices, prices_of_store

H200 = Host(names=("NVIDIA H200",))


def points(**columns):
    row = {
        "trial_id": "t",
        "labels": [],
        "engine.accelerator": "cuda",
        "output_tok_s": 8000.0,
        "output_tok_s.n": 64.0,
        "output_tok_s.low": 7600.0,
        "output_tok_s.high": 8400.0,
        "output_tok_s.reason": None,
        "output_tok_s_device": 1000.0,
        "total_tok_s": 40000.0,
        "total_tok_s.n": 64.0,
        "total_tok_s.low": 38000.0,
        "total_tok_s.high": 42000.0,
        "total_tok_s.reason": None,
    }
    return pd.DataFrame([{**row, **columns}])


def costed(host=H200, prices=None, **columns):
    return with_cost(points(**columns), host, prices or load_prices(), BUILT_IN.parent).iloc[0]


def test_a_cost_is_the_price_of_all_allocated_devices_over_the_tokens_of_an_hour():
    row = costed()
    per_hour = 8 * 1.60  # rental, eight devices
    assert row["cost.devices"] == 8
    assert row["cost_usd_mtok_output"] == pytest.approx(per_hour / (8000 * 3600) * 1e6)
    assert row["cost_usd_mtok_total"] == pytest.approx(per_hour / (40000 * 3600) * 1e6)
    assert row["cost_usd_mtok_input"] == pytest.approx(per_hour / (32000 * 3600) * 1e6)
    assert row["cost_usd_mtok_output.low"] == pytest.approx(per_hour / (8400 * 3600) * 1e6)
    assert row["cost_usd_mtok_output.high"] == pytest.approx(per_hour / (7600 * 3600) * 1e6)
    assert row["cost_usd_mtok_output.n"] == 64
    assert np.isnan(row["cost_usd_mtok_input.low"])
    assert row["cost_usd_mtok_output.reason"] is None
    assert (row["cost.prices"], row["cost.tier"]) == ("2026-04", "rental")


def test_another_tier_has_its_own_price():
    cheap = costed(prices=load_prices(tier="hyperscaler"))
    assert cheap["cost.usd_device_h"] == 1.41
    with pytest.raises(PriceError, match="Did you mean hyperscaler"):
        load_prices(tier="hyperscale")


@pytest.mark.parametrize(
    ("host", "columns", "reason"),
    [
        (Host(names=("NVIDIA L4",)), {}, "has no price for NVIDIA L4"),
        (Host(names=("NVIDIA H200 NVL",)), {}, "has no price for NVIDIA H200 NVL"),
        (Host(names=("Ascend910",)), {}, "has no price for Ascend910"),
        (H200, {"engine.accelerator": "cpu"}, "has no price for cpu"),
        (H200, {"labels": ["simulated"]}, "simulated: no device was used"),
        (Host(names=()), {}, "names no device"),
        (Host(names=("NVIDIA H200", "NVIDIA L4")), {}, "several kinds (NVIDIA H200, NVIDIA L4)"),
        (H200, {"engine.url": "http://server"}, "does not say the server's device"),
        (H200, {"output_tok_s_device": np.nan}, "number of devices is not known"),
    ],
)
def test_what_has_no_price_has_no_cost_and_a_reason(host, columns, reason):
    row = costed(host, **columns)
    for name in COST_METRICS:
        assert np.isnan(row[name])
        assert row[f"{name}.n"] == 0
        assert reason in row[f"{name}.reason"]


def test_a_missing_rate_keeps_its_own_reason():
    row = costed(output_tok_s=np.nan, **{"output_tok_s.reason": "no request succeeded"})
    assert row["cost_usd_mtok_output.reason"] == "no request succeeded"
    assert np.isnan(row["cost_usd_mtok_output"])


def test_a_server_that_was_only_asked_costs_what_the_plan_says_it_runs_on():
    told = Host.of({"devices": None}, {"http": {"accelerator": "NVIDIA H200"}})
    row = costed(told, **{"engine.url": "http://server"})
    assert row["cost_usd_mtok_output"] > 0
    assert row["cost.accelerator"] == "NVIDIA H200"


@given(
    rate=st.one_of(st.none(), st.floats(), st.just(0.0)),
    each=st.one_of(st.none(), st.floats(), st.just(0.0)),
    total=st.one_of(st.none(), st.floats()),
)
def test_no_rate_however_odd_gives_a_cost_of_zero_or_a_crash(rate, each, total):
    row = costed(output_tok_s=rate, output_tok_s_device=each, total_tok_s=total)
    for name in COST_METRICS:
        value = row[name]
        assert np.isnan(value) or value != 0
        assert np.isnan(value) == isinstance(row[f"{name}.reason"], str)


def own_table(tmp_path, name="mine.yaml", **changes):
    table = {
        "version": "ours-1",
        "as_of": "2026-11",
        "source": "our contract",
        "default_tier": "contract",
        "tiers": {"contract": "what we pay"},
        "devices": [{"names": ["cpu"], "usd_device_h": {"contract": 0.36}}],
    }
    path = tmp_path / name
    path.write_text(yaml.safe_dump({**table, **changes}))
    return path


def test_a_table_of_ones_own_can_price_the_processor(tmp_path):
    prices = load_prices(own_table(tmp_path))
    row = costed(prices=prices, output_tok_s_device=8000.0, **{"engine.accelerator": "cpu"})
    assert row["cost_usd_mtok_output"] == pytest.approx(0.0125)
    assert row["cost.prices"] == "ours-1 (mine.yaml)"
    assert prices.of("cpu").source == "our contract"


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"version": ""}, "version"),
        ({"currency": "EUR"}, "currency"),
        ({"devises": []}, "devises"),
        ({"default_tier": "spot"}, "default_tier 'spot' is none of"),
        ({"devices": [{"names": ["x"], "usd_device_h": {"contract": 0.0}}]}, "leave it out"),
        ({"devices": [{"names": ["x"], "usd_device_h": {"spot": 1.0}}]}, "unknown tier 'spot'"),
        ({"devices": [{"names": [], "usd_device_h": {"contract": 1.0}}]}, "devices.0.names"),
        ({"devices": [{"names": ["x"], "usd_device_h": {"contract": "1"}}]}, "usd_device_h"),
    ],
)
def test_a_wrong_table_is_refused_by_its_field(changes, says, tmp_path):
    with pytest.raises(PriceError, match=says.replace("(", r"\(")):
        load_prices(own_table(tmp_path, **changes))


def test_all_that_a_table_lacks_is_told_at_once_with_one_that_is_right(tmp_path):
    path = tmp_path / "short.yaml"
    path.write_text("version: '1'\ntiers: {t: x}\n")
    with pytest.raises(PriceError, match="lacks as_of, source, default_tier, devices") as caught:
        load_prices(path)
    (tmp_path / "right.yaml").write_text(EXAMPLE)
    assert EXAMPLE in str(caught.value.remedy)
    assert load_prices(tmp_path / "right.yaml").of("NVIDIA H200").usd_device_h == 1.6
    unknown = load_prices().of("Abacus 3000").reason
    assert "names are ['Abacus 3000']" in unknown


@pytest.mark.parametrize("text", ["- 1", "a: [", "", "\x00"])
def test_what_is_no_table_is_refused(text, tmp_path):
    path = tmp_path / "x.yaml"
    path.write_text(text)
    with pytest.raises(PriceError):
        load_prices(path)
    with pytest.raises(PriceError, match="cannot be read"):
        load_prices(tmp_path / "absent.yaml")


def test_every_price_that_ships_has_a_source_a_date_and_is_above_zero():
    table = load_prices().table
    assert table.source
    assert table.as_of
    assert all(p > 0 for device in table.devices for p in device.usd_device_h.values())
    assert all(set(device.usd_device_h) == set(table.tiers) for device in table.devices)


def test_points_of_a_run_carry_costs_by_the_table_of_their_store(tmp_path):
    run = fill_store(tmp_path)
    before = run.points()
    assert before["cost_usd_mtok_output"].isna().all()
    assert set(FACTS) <= set(before.columns)
    own_table(tmp_path, "prices.yaml", devices=[
        {"names": ["*"], "usd_device_h": {"contract": 0.36}}
    ])  # fmt: skip
    assert prices_of_store(tmp_path).name == "ours-1 (prices.yaml)"
    again = wb.Store(tmp_path).run(run.run_id)
    assert set(again.points()["cost.prices"]) == {"ours-1 (prices.yaml)"}
    assert set(again.points(prices=load_prices())["cost.prices"]) == {"2026-04"}


def test_costs_are_metrics_that_a_front_can_be_drawn_over():
    assert set(COST_METRICS) < set(wb.METRICS)
    table = pd.concat(
        [points(output_tok_s_device=each, trial_id=str(each)) for each in (500.0, 1000.0)],
        ignore_index=True,
    )
    table = table.assign(
        valid=True, state="ok", reason=None, tok_s_user=[80.0, 40.0], **{"tok_s_user.n": 64.0}
    )
    found = with_cost(table, H200, load_prices(), BUILT_IN.parent)
    front = wb.pareto(
        found,
        wb.Axis(metric="tok_s_user", direction="max"),
        wb.Axis(metric="cost_usd_mtok_output", direction="min"),
    )
    assert set(front.members) == {"500.0", "1000.0"}


def test_the_command_names_the_table_and_why_there_is_no_cost(tmp_path):
    run = fill_store(tmp_path / "store")
    words = CliRunner().invoke(app, ["cost", run.run_id, "--store", str(tmp_path / "store")])
    assert words.exit_code == 0, words.output
    said = " ".join(words.output.split())
    assert "the run names no device" in said
    assert "c = requests in flight" in said
    assert "the whole cost of the devices over those tokens alone" in said
    assert "prices: table 2026-04, tier rental" in said
    wrong = CliRunner().invoke(app, ["cost", "--store", str(tmp_path / "store"), "--tier", "x"])
    assert wrong.exit_code == 2
