"""Ascend devices, from what `npu-smi` of many drivers printed and from a scripted DCMI."""

import ctypes
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments import ascend_smi
from experiments.ascend import NO_COUNTER, NO_POWER, PACKAGE_POWER, AscendReader, Chip
from experiments.ascend_dcmi import Dcmi
from experiments.ascend_smi import npu_smi, parse
from experiments.devices import find_reader
from experiments.energy import energy
from experiments.errors import TelemetryError
from tests.experiments.records import measurement, request

CAPTURES = Path(__file__).parents[1] / "data" / "npu_smi"


def captured(name):
    return (CAPTURES / f"{name}.txt").read_text()


def chips(name):
    return parse(captured(name))


@pytest.mark.parametrize(
    ("name", "count", "first"),
    [
        (
            "info_910b2_24.1.0.3",
            3,
            Chip(
                card=0,
                chip=0,
                name="910B2",
                health="OK",
                bus_id="0000:C1:00.0",
                power_w=96.4,
                temperature_c=37.0,
                aicore_percent=0.0,
                memory_used_mb=3397,
                memory_total_mb=65536,
            ),
        ),
        (
            "info_310p3_25.2.0",  # no HBM column, no power, ids from 2, one bus id for two chips
            2,
            Chip(
                card=2,
                chip=0,
                name="310P3",
                health="OK",
                bus_id="0000:01:00.0",
                physical_id=0,
                temperature_c=45.0,
                aicore_percent=0.0,
                memory_used_mb=1529,
                memory_total_mb=44280,
            ),
        ),
        (
            "info_310p3_pasted_by_hand_25.0.rc1.1",  # single spaces: columns are no keys
            1,
            Chip(
                card=0,
                chip=0,
                name="310P3",
                health="0K",
                bus_id="0000:81:00.0",
                power_w=89.2,
                temperature_c=39.0,
                aicore_percent=0.0,
                memory_used_mb=1460,
                memory_total_mb=44280,
            ),
        ),
        (
            "info_910_gen1_24.1.0.3",  # DDR and HBM: the device's memory is HBM
            2,
            Chip(
                card=0,
                chip=0,
                name="910B",
                health="OK",
                bus_id="0000:C1:00.0",
                power_w=69.3,
                temperature_c=41.0,
                aicore_percent=0.0,
                memory_used_mb=5,
                memory_total_mb=32768,
            ),
        ),
    ],
)
def test_a_table_is_read_by_its_header_words(name, count, first):
    found = chips(name)
    assert len(found) == count
    assert found[0] == first


def test_numbers_that_touch_the_slash_are_read_and_a_row_cut_short_is_left_out():
    (only,) = chips("info_910b2_24.1.0_busy")
    assert (only.memory_used_mb, only.memory_total_mb) == (59891, 65536)


@pytest.mark.parametrize("name", ["info_a3_24.1.rc3.7", "info_a3_25.3.rc1"])
def test_two_chips_of_a_card_are_two_devices_and_the_second_tells_no_power(name):
    first, second = chips(name)
    assert (first.card, first.chip, first.physical_id) == (0, 0, 0)
    assert (second.card, second.chip, second.physical_id) == (0, 1, 1)
    assert first.power_w > 100
    assert second.power_w is None
    assert first.bus_id != second.bus_id


def test_a_table_of_processes_after_the_chips_is_no_chip():
    """The capture is cut at its head: a newer driver's header, as wide, is put before it."""
    header = captured("info_a3_25.3.rc1").split("+====")[0]
    found = parse(header + captured("info_a3_busy_processes"))
    assert [(chip.card, chip.chip, chip.memory_used_mb) for chip in found] == [
        (7, 0, 15503),
        (7, 1, 15242),
    ]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (captured("error_-8005_container"), "may not reach the devices"),
        (captured("error_-8020_device_used"), "taken by another container"),
        (captured("info_a3_busy_processes"), "prints no table of chips"),
        ("", "prints no table of chips"),
        ("command not found", "command not found"),
    ],
)
def test_what_is_no_table_is_a_typed_error_with_the_words(text, says):
    with pytest.raises(TelemetryError, match=says):
        parse(text)


def test_every_capture_has_its_source():
    import json

    sources = json.loads((CAPTURES / "SOURCES.json").read_text())
    assert {path.name for path in CAPTURES.glob("*.txt")} == sources.keys()


@given(
    lines=st.lists(
        st.sampled_from(
            [
                line
                for path in sorted(CAPTURES.glob("info_*"))
                for line in path.read_text().split("\n")
            ]
        ),
        max_size=30,
    )
)
def test_any_mixture_of_real_lines_gives_chips_or_a_typed_error(lines):
    try:
        found = parse("\n".join(lines))
    except TelemetryError:
        return
    assert all(chip.power_w is None or chip.power_w > 0 for chip in found)


def test_a_host_without_the_tool_says_so(monkeypatch):
    monkeypatch.setenv("PATH", "")
    with pytest.raises(TelemetryError, match="npu-smi: does not answer"):
        npu_smi()


def test_an_engine_on_ascend_without_driver_gets_a_reason_not_a_crash(monkeypatch):
    monkeypatch.setenv("PATH", "")
    with pytest.raises(TelemetryError, match="npu-smi"):
        find_reader(["NPU-0000:C1:00.0"])
    with pytest.raises(TelemetryError, match="two vendors"):
        find_reader(["NPU-0000:C1:00.0", "GPU-1"])


def reader(name, *identities):
    return AscendReader(lambda: chips(name), identities, interval_s=0.0)


def test_a_chip_is_found_by_its_bus_id_whatever_its_number():
    rows = reader("info_910b2_24.1.0.3", "NPU-0000:81:00.0", "NPU-0000:c1:00.0").read(3.0)
    assert [row.device_power_w for row in rows] == [92.6, 96.4]
    assert [row.device_index for row in rows] == [0, 1]
    assert {row.telemetry_reason for row in rows} == {NO_COUNTER}
    assert rows[0].device_memory_bytes == 3396 << 20


def test_chips_that_share_a_bus_id_are_told_apart_by_number():
    with pytest.raises(TelemetryError, match="names two chips"):
        reader("info_310p3_25.2.0", "NPU-0000:01:00.0")
    (row,) = reader("info_310p3_25.2.0", "NPU-0000:01:00.0/1").read(0.0)
    assert row.device_temperature_c == 43
    assert row.device_power_w is None
    assert row.telemetry_reason == NO_POWER


def test_a_chip_that_is_not_there_is_refused_with_those_that_are():
    with pytest.raises(TelemetryError, match=r"Known: NPU-0000:C1:00\.0/0"):
        reader("info_910b2_24.1.0.3", "NPU-0000:FF:00.0")


def test_the_power_of_a_card_counts_once_and_only_if_both_chips_are_ours():
    both = reader("info_a3_25.3.rc1", "NPU-0000:9D:00.0", "NPU-0000:9F:00.0").read(0.0)
    assert sum(row.device_power_w for row in both) == pytest.approx(163.6)
    (one,) = reader("info_a3_25.3.rc1", "NPU-0000:9D:00.0").read(0.0)
    assert one.device_power_w is None
    assert one.telemetry_reason == PACKAGE_POWER


def test_a_tool_that_fails_midway_leaves_rows_with_the_reason():
    answers = [captured("info_910b2_24.1.0.3"), captured("error_-8005_container")]
    opened = AscendReader(lambda: parse(answers.pop(0)), ["NPU-0000:C1:00.0"], interval_s=0.0)
    (row,) = opened.read(1.0)
    assert row.device_power_w is None
    assert "-8005" in row.telemetry_reason


def test_energy_of_ascend_devices_comes_from_their_power():
    opened = reader("info_910b2_24.1.0.3", "NPU-0000:C1:00.0")
    telemetry = tuple(row for i in range(26) for row in opened.read(i * 0.5))
    m = measurement([request([(1.0, 50), (11.0, 50)])], window_s=(1.0, 11.0), telemetry=telemetry)
    found = energy(m)
    assert found["energy_j_token"].value == pytest.approx(96.4 * 10 / 100)
    assert found["energy_agreement"].value is None
    assert found["energy_agreement"].reason == NO_COUNTER


class FakeDcmi:
    """Two cards: one with two chips, one with a chip and a controller that is no NPU."""

    def __init__(self, code=0, refused=()):
        self.units = {0: (0, 0), 3: (0, 1)}
        self.code, self.refused = code, refused

    def __getattribute__(self, name):
        if name.startswith("dcmi_") and name in object.__getattribute__(self, "refused"):
            return lambda *_: -8255
        return object.__getattribute__(self, name)

    def dcmi_init(self):
        return self.code

    def dcmi_get_card_list(self, count, cards, most):
        assert most == len(cards)
        count._obj.value = len(self.units)
        cards[:2] = list(self.units)
        return 0

    def dcmi_get_device_num_in_card(self, card, into):
        into._obj.value = len(self.units[card])
        return 0

    def dcmi_get_device_type(self, card, unit, into):
        into._obj.value = self.units[card][unit]
        return 0

    def dcmi_get_device_power_info(self, card, unit, into):
        into._obj.value = 1786
        return 0

    def dcmi_get_device_temperature(self, card, unit, into):
        into._obj.value = 40 + card + unit
        return 0

    def dcmi_get_device_utilization_rate(self, card, unit, kind, into):
        into._obj.value = {2: 77}[kind]
        return 0

    def dcmi_get_device_frequency(self, card, unit, kind, into):
        into._obj.value = {7: 1850, 6: 1600}[kind]
        return 0

    def dcmi_get_device_hbm_info(self, card, unit, into):
        into._obj.total_mb, into._obj.used_mb = 65536, 3397
        return 0

    def dcmi_get_device_pcie_info_v2(self, card, unit, into):
        into._obj.domain, into._obj.bus, into._obj.slot = 0, 0xC1 + card + unit, 0
        return 0


def test_dcmi_gives_the_same_chips_in_its_own_units():
    found = Dcmi(FakeDcmi()).chips()
    assert [(chip.card, chip.chip) for chip in found] == [(0, 0), (0, 1), (3, 0)]
    first = found[0]
    assert first.power_w == 178.6
    assert first.bus_id == "0000:C1:00.0"
    assert (first.aicore_percent, first.aicore_clock_mhz, first.memory_clock_mhz) == (
        77,
        1850,
        1600,
    )
    assert (first.memory_used_mb, first.memory_total_mb) == (3397, 65536)
    assert found[2].temperature_c == 43


def test_what_dcmi_refuses_or_does_not_have_is_none():
    library = FakeDcmi(refused=("dcmi_get_device_power_info", "dcmi_get_device_hbm_info"))
    found = Dcmi(library).chips()[0]
    assert found.power_w is None
    assert found.memory_used_mb is None
    assert found.temperature_c == 40


def test_a_dcmi_that_does_not_start_or_is_not_there_is_a_typed_error(tmp_path):
    with pytest.raises(TelemetryError, match="does not start"):
        Dcmi(FakeDcmi(code=-8005))
    with pytest.raises(TelemetryError, match="not installed"):
        Dcmi.open((tmp_path,))
    (tmp_path / "libdcmi.so").write_text("no library")
    with pytest.raises(TelemetryError, match="cannot be loaded"):
        Dcmi.open((tmp_path,))


def test_the_structures_have_the_sizes_of_the_vendors_header():
    from experiments import ascend_dcmi

    assert ctypes.sizeof(ascend_dcmi._HbmInfo) == 32
    assert ctypes.sizeof(ascend_dcmi._PcieInfo) == 64
    assert ascend_smi.INTERVAL_S >= 1
