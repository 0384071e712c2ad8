"""The price table of the store, and changes to it that hold for one visit and are named as such."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import streamlit as st

import workbench as wb
from dashboards import address, markup, parts, reading
from workbench.prices import prices_of_store

EDITED = "prices.edited"
NAMES = "Device names (driver's, * for anything)"
ADVICE = (
    "A change holds for this visit only. To keep it, save the table as prices.yaml in the store, "
    "or pass it as --prices."
)


def prices() -> wb.Prices:
    """The table as edited in this visit, else that of the store, in the tier of the address."""
    own = prices_of_store(Path(reading.store_path()))
    table = st.session_state.get(EDITED, own.table)
    tier = address.parameter("tier")
    name = own.name if EDITED not in st.session_state else f"{own.name}, changed on this page"
    return wb.Prices(table=table, name=name, tier=tier if tier in table.tiers else own.tier)


def show(now: wb.Prices) -> None:
    """The table for editing, with its version, source and tiers."""
    with st.expander(f"Price table {now.name}: {now.tier}"):
        tiers = list(now.table.tiers)
        address.choose(
            "Tier", tiers, "tier", default=now.table.default_tier,
            words=lambda tier: f"{tier}: {now.table.tiers[tier]}",
        )  # fmt: skip
        parts.html(markup.note(f"USD for a device and hour, as of {now.table.as_of}."))
        parts.html(markup.note(f"Source: {now.table.source}. {ADVICE}"))
        changed = st.data_editor(
            _rows(now.table), num_rows="dynamic", hide_index=True, key="prices.rows"
        )
        with st.container(horizontal=True):
            if st.button("Use these prices", key="prices.use"):
                _use(changed, now)
            if EDITED in st.session_state and st.button("Back to the table", key="prices.back"):
                del st.session_state[EDITED]
                st.rerun()


def _rows(table: wb.PriceTable) -> pd.DataFrame:
    return pd.DataFrame(
        [
            {NAMES: ", ".join(device.names), **{t: device.usd_device_h.get(t) for t in table.tiers}}
            for device in table.devices
        ]
    )


def _use(rows: pd.DataFrame, now: wb.Prices) -> None:
    """Take the rows as the table of this visit; what is wrong in them is told."""
    devices = [
        {
            "names": [name.strip() for name in str(row[NAMES]).split(",") if name.strip()],
            "usd_device_h": {t: float(row[t]) for t in now.table.tiers if pd.notna(row[t])},
        }
        for _, row in rows.iterrows()
        if pd.notna(row[NAMES])
    ]
    document = now.table.model_dump() | {"devices": devices}
    try:
        st.session_state[EDITED] = wb.table_of(document, where="the prices of this page")
    except wb.BenchError as error:
        parts.html(markup.banner([str(error)]))
        return
    st.rerun()
