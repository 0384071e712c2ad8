"""The command that says what tokens cost, in money and in joules."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from workbench.cli_options import JsonOption, PricesOption, StoreOption
from workbench.cli_output import say, say_json, show_table
from workbench.cli_show import RunArgument, chosen
from workbench.invocation import DEFAULT_STORE
from workbench.store import Store

if TYPE_CHECKING:
    import pandas as pd

    from workbench.prices import Prices

SHOWN = {
    "tok_s_user": "tok/s/user",
    "cost_usd_mtok_output": "output",
    "cost_usd_mtok_input": "input",
    "cost_usd_mtok_total": "all",
    "energy_j_token": "J/tok",
}
MEANING = (
    "output, input, all: the whole cost of the devices over those tokens alone, so that they do "
    "not add up."
)
WITH_INTERVAL = ("cost_usd_mtok_output", "energy_j_token")
"""Where 80 columns have room for it; --json has all of them."""


def cost(
    run_id: RunArgument = None,
    prices: PricesOption = None,
    tier: Annotated[
        str | None, typer.Option(help="Of the price table; its default if left out.")
    ] = None,
    store: StoreOption = DEFAULT_STORE,
    json: JsonOption = False,
) -> None:
    """Say what a million tokens cost at each point, by a price table that is named."""
    from workbench.cli_tables import points_legend
    from workbench.prices import load_prices, prices_of_store

    run = chosen(Store(store), run_id)
    table = load_prices(prices, tier=tier) if prices or tier else prices_of_store(run.folder.parent)
    points = run.points(prices=table)
    rows, why = _rows(points)
    show_table(
        f"{run.run_id}: USD for a million tokens",
        ("trial", "point", "state", *SHOWN.values()),
        rows,
        whole=("trial", "state"),
    )
    for line in (f"{points_legend(points)}. {MEANING}", *why, _of_table(table, points)):
        say(line)
    if json:
        say_json({"prices": table.name, "tier": table.tier, "points": _document(points)})


def _rows(points: pd.DataFrame) -> tuple[list[tuple[str, ...]], list[str]]:
    """Cells of each point, and each reason for missing numbers once."""
    from workbench.cli_tables import point_cell, short_ids
    from workbench.columns import by_axes
    from workbench.figures_text import interval, number

    ids = short_ids([str(name) for name in points["trial_id"]])
    rows: list[tuple[str, ...]] = []
    lacking: dict[str, dict[str, None]] = {}  # reason -> the numbers that it took
    for _, point in by_axes(points).iterrows():
        cells = []
        for name, head in SHOWN.items():
            spread = interval(point.get(f"{name}.low"), point.get(f"{name}.high"))
            shown = spread if name in WITH_INTERVAL else ""
            cells.append(number(point.get(name)) + (f" ({shown})" if shown else ""))
            if isinstance(reason := point.get(f"{name}.reason"), str):
                lacking.setdefault(reason, {})[head] = None
        rows.append((ids[str(point["trial_id"])], point_cell(point), str(point["state"]), *cells))
    return rows, [f"missing {', '.join(heads)}: {reason}" for reason, heads in lacking.items()]


def _of_table(table: Prices, points: pd.DataFrame) -> str:
    """Which prices these are, of what, from where and when."""
    text = f"prices: table {table.name}, tier {table.tier} ({table.table.tiers[table.tier]})"
    found = [table.of(str(name)) for name in points["cost.accelerator"].dropna().unique()]
    for price in found:
        if price.usd_device_h is not None:
            text += f"; {price.usd_device_h:g} USD a device and hour as of {price.as_of}, "
            text += f"by {price.source}"
    return text


def _document(points: pd.DataFrame) -> list[dict[str, object]]:
    from workbench.cost import COST_METRICS, FACTS

    parts = ("", ".low", ".high", ".reason")
    names = [*FACTS, *(f"{name}{part}" for name in COST_METRICS for part in parts)]
    kept = points[["trial_id", *names]].astype(object)
    rows = kept.where(kept.notna(), None).itertuples(index=False, name=None)
    return [dict(zip(kept.columns, row, strict=True)) for row in rows]


COMMANDS: dict[str, Callable[..., None]] = {"cost": cost}
