"""Why a device's clocks are held below what they could be, and which of it is a fault."""

from __future__ import annotations

from collections.abc import Iterable

BENIGN = {
    "gpu_idle": "nothing runs",
    "applications_clocks_setting": "somebody set the clocks; the manifest holds them",
    "sw_power_cap": "the board works at its power limit; the manifest holds it",
    "sync_boost": "the devices of a group keep one clock",
    "display_clock_setting": "the display sets the clock",
    "board_limit": "the design of the board sets the clock",
    "reliability": "the voltage that the chip bears for its lifetime sets the clock",
}
"""Reasons that belong to how the device is set up: equal on every host set up like it."""

HARMFUL = {
    "sw_thermal_slowdown": "the device is too hot",
    "hw_thermal_slowdown": "the device is too hot, by its own sensor",
    "hw_slowdown": "the hardware pulled the brake: heat, supply or brake signal",
    "hw_power_brake_slowdown": "the supply of the host pulled the brake",
}
"""Reasons that come from the surroundings: the same trial elsewhere, or later, is faster."""


def harmful(reasons: Iterable[str]) -> tuple[str, ...]:
    """Those of `reasons` that spoil a measurement; a reason that is in no table counts as one."""
    return tuple(reason for reason in reasons if reason not in BENIGN)
