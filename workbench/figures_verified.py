"""What the tokens of verify steps were: accepted, wasted, or the bonus that each step gives."""

from __future__ import annotations

import pandas as pd
import plotly.graph_objects as go

from workbench.columns import words_of
from workbench.figures_chart import chart, name_axes, plain_title
from workbench.figures_marks import stamp
from workbench.figures_ratios import counted, levels
from workbench.figures_speculation import DRAFT, drafted
from workbench.figures_text import number, safe
from workbench.figures_theme import OKABE_ITO, Look

TALLY = ("draft_length", "steps", "proposed", "verified", "accepted", "wasted", "emitted")


def tally(points: pd.DataFrame) -> pd.DataFrame:
    """TALLY, one row a draft length: tokens of all valid points that drafted."""
    rows = drafted(points)
    found = []
    for length in levels(rows, DRAFT):
        part = rows[words_of(rows[DRAFT]) == length]
        emitted, steps = counted(part, "acceptance_length")
        accepted, proposed = counted(part, "acceptance_rate")
        found.append((length, steps, proposed, proposed + steps, accepted,
                      proposed - accepted, emitted))  # fmt: skip
    return pd.DataFrame(found, columns=list(TALLY))


def verified_tokens(points: pd.DataFrame, *, look: Look) -> tuple[go.Figure, pd.DataFrame]:
    """What the tokens of a verify step are: the bonus one, accepted drafts, wasted drafts."""
    found = tally(points)
    figure = chart(look, _waste(found), stamp(points), "tokens a verify step, all points together")
    parts = (
        ("bonus token", found["steps"], OKABE_ITO[5]),
        ("accepted drafts", found["accepted"], OKABE_ITO[0]),
        ("wasted drafts", found["wasted"], OKABE_ITO[1]),
    )
    for name, values, colour in parts:
        shares = (values / found["steps"]).tolist()
        figure.add_trace(
            go.Bar(
                y=found["draft_length"].tolist(),
                x=shares,
                orientation="h",
                name=name,
                marker={"color": colour},
                hoverinfo="text",
                hovertext=[
                    f"draft length {safe(length)}: <b>{number(share)}</b> {name} a step"
                    for length, share in zip(found["draft_length"], shares, strict=True)
                ],
            )
        )
    x, y = plain_title("tokens verified in a step"), plain_title("draft length")
    name_axes(figure, x, y, dark=look.dark)
    figure.update_yaxes(type="category", autorange="reversed")
    figure.update_layout(barmode="stack", uirevision="verified", bargap=0.35)
    figure.update_layout(legend={"traceorder": "normal"})
    return figure, found


def _waste(found: pd.DataFrame) -> str:
    if found.empty:
        return "No draft was verified"
    shares = found["wasted"] / found["verified"]
    worst = found.loc[shares.idxmax()]
    return (
        f"Draft length {worst['draft_length']} wastes most: "
        f"{number(100 * float(shares.max()))} % of the tokens it verifies"
    )
