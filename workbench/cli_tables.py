"""Tables of points for a terminal: short where it is narrow, with intervals where there is room."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from workbench.catalogue import METRICS
from workbench.cli_output import has_room, say, say_labels, show_table
from workbench.columns import by_axes
from workbench.figures_headline import headline
from workbench.figures_text import MISSING, interval, number, plural
from workbench.report_tables import measured, point_table
from workbench.words import WITHIN_RUN, interval_words, marks_legend, point_marks, point_words

if TYPE_CHECKING:
    import pandas as pd

    from experiments.records import ForeignNumber, MetricValue
    from workbench.fronts import Front

SHORT = {
    "output_tok_s_device": "tok/s/dev",
    "tok_s_user": "tok/s/user",
    "ttft_s_p50": "TTFT s",
    "e2e_s_p50": "E2E s",
    "prefill_tok_s": "prefill tok/s",
    "decode_step_s": "step s",
}
"""Headers of a narrow table; latencies are medians."""
RIVAL_CHANCE = 0.05  # from which a point may well be on a front
PREFIX = 8  # characters of an id that tell trials apart in all but the rarest store


def show_points(
    points: pd.DataFrame, *, wide: bool, beyond: Mapping[str, str] | None = None
) -> None:
    """One row a point, ordered by axes; intervals and whole ids where there is room for them.

    `beyond` holds by trial id which limits of a search it breaks.
    """
    say_labels(points)
    points = by_axes(points)
    if has_room(wide):
        table = point_table(points)
        show_table("trials", table.headers, table.rows, whole=("trial",), wide=wide)
        if table.note:
            say(table.note)
        return
    leads = headline(points).columns
    shown = [name for name in leads if name in points.columns and points[name].notna().any()]
    ids = short_ids([str(name) for name in points["trial_id"]])
    rows = [
        (
            ids[str(p["trial_id"])],
            point_cell(p),
            _state(p, beyond or {}),
            *(number(p[name]) for name in shown),
        )
        for _, p in points.iterrows()
    ]
    headers = ("trial", "point", "state", *(_heading(name, room=False) for name in shown))
    show_table("trials", headers, rows, whole=("trial", "state"))
    medians = "; TTFT and E2E are medians" if {"ttft_s_p50", "e2e_s_p50"} & set(shown) else ""
    say(f"{points_legend(points)}{medians}.")
    say(f"{WITHIN_RUN}; --wide shows them with n, and every id whole.")


def _state(point: pd.Series, beyond: Mapping[str, str]) -> str:
    return f"{point['state']}{' *' if str(point['trial_id']) in beyond else ''}"


def short_ids(ids: list[str]) -> dict[str, str]:
    """Each id by its shortest beginning, of at least PREFIX characters, that no other shares."""
    length = PREFIX
    while len({name[:length] for name in ids}) < len(set(ids)):
        length += 1
    return {name: name[:length] for name in ids}


def show_front(points: pd.DataFrame, front: Front) -> None:
    """The front's points by x with their chance to be on it, and what did not compete."""
    room = has_room()
    axes = (front.x.metric, front.y.metric)
    ids = short_ids([str(name) for name in points["trial_id"]])
    chances = dict(zip(points["trial_id"].map(str), front.probability, strict=True))
    headers = ["point", *(_heading(name, room) for name in axes), "on front", "trial"]
    for group, members in front.groups.items():
        of_group = points["trial_id"].isin(members)
        same = _same(points[of_group])
        rows = points[of_group & front.on_front].drop(columns=same)
        rows = rows.sort_values([front.x.metric, "trial_id"])
        title = "Pareto front" if len(front.groups) == 1 else f"Pareto front of {group}"
        title += _all_with(points[of_group], same, group)
        cells = [
            (
                point_cell(p),
                *(_cell(p, name, room) for name in axes),
                chance_words(chances[str(p["trial_id"])]),
                _id(p, ids, room),
            )
            for _, p in rows.iterrows()
        ]
        show_table(title, headers, cells, whole=("trial",))
    if front.groups:
        spans = points[[f"{name}.low" for name in axes]].notna().any(axis=None)
        brackets = f" In brackets: 95 % intervals, {_bases(points)}." if spans else ""
        say(f"{points_legend(points)}.{brackets}")
        _say_chances(front)
    else:
        say(_no_front(points, front))
    out_of_it = sum(reason is not None for reason in front.excluded)
    if out_of_it:
        say(f"{out_of_it} points did not compete (invalid, failed or not measured).")
    say_labels(points)


def _no_front(points: pd.DataFrame, front: Front) -> str:
    """Why there is no front: no valid point, or axes that valid points lack, and what to use."""
    valid = points["valid"].to_numpy(dtype=bool)
    whys = dict.fromkeys(
        why for why, sound in zip(front.excluded, valid, strict=True) if sound and why
    )
    if not whys:
        return "No valid point, so there is no front."
    x, y = headline(points).axes
    other = f" Use --x {x} --y {y}." if (x, y) != (front.x, front.y) else ""
    return f"No front of {front.x} and {front.y}: {'; '.join(whys)}.{other}"


def _bases(points: pd.DataFrame) -> str:
    """What the intervals of valid points cover: `within-run`, `over 3 repeats`."""
    told = points.loc[points["valid"].astype(bool), "interval_basis"].unique()
    return " or ".join(str(words) for words in told)


def _say_chances(front: Front) -> None:
    """What `on front` means, and how many points it would not surprise to see there."""
    rivals = int(((front.probability >= RIVAL_CHANCE) & ~front.on_front).sum())
    more = f"; {plural(rivals, 'more point')} may be ({RIVAL_CHANCE:.0%} or more)" if rivals else ""
    untold = bool((np.isnan(front.probability) & front.on_front).any())
    dash = f"; {MISSING} where it has no interval" if untold else ""
    say(f"on front: the chance that the point is, as far as its interval tells{dash}{more}.")


def show_at(points: pd.DataFrame, front: Front, x: float) -> None:
    """For each group what it attains at `x`, and the points that may serve it, likeliest first."""
    spec, marks = METRICS[front.y.metric], _marks_by_trial(points)
    for group in front.groups:
        found = front.at(x, group)
        name = group if len(front.groups) > 1 else "the front"
        if found.value is None:
            say(f"{name} at {x:g} {_unit(front.x.metric)}: {found.reason}")
            continue
        spread = interval(found.low, found.high) or "no bound on one side"
        say(
            f"{name} at {x:g} {_unit(front.x.metric)}: {number(found.value)} {spec.unit} ({spread})"
        )
        rows = [
            (marks[row.trial_id], number(row.x), number(row.y), chance_words(row.reaches),
             chance_words(row.best))
            for row in front.ranked_at(x, group).itertuples() if row.best >= RIVAL_CHANCE
        ]  # fmt: skip
        heads = ("point", _heading(front.x.metric, False), _heading(front.y.metric, False))
        show_table(f"who serves {x:g}", (*heads, "reaches it", "best"), rows)


def _marks_by_trial(points: pd.DataFrame) -> dict[str, str]:
    return {str(p["trial_id"]): point_cell(p) for _, p in points.iterrows()}


def chance_words(chance: float) -> str:
    """`97 %`; a dash where no interval tells."""
    return MISSING if chance != chance else f"{chance * 100:.0f} %"


def front_document(points: pd.DataFrame, front: Front) -> dict[str, object]:
    """The front for a program: axes, and every point with its values, intervals and group."""
    axes = {"x": front.x, "y": front.y}
    rows = []
    for place, (_, p) in enumerate(points.iterrows()):
        row = {
            "trial_id": p["trial_id"],
            "run_id": p["run_id"],
            "group": front.group_of[place],
            "on_front": bool(front.on_front[place]),
            "excluded": front.excluded[place],
            "on_front_probability": _chance(front, place),
            "repeats": int(p["repeats"]),
            "interval_basis": p["interval_basis"],
            "point": {name.removeprefix("axis."): p[name] for name in _axes(p)},
        }
        rows.append(row | {key: _number(p, axis.metric) for key, axis in axes.items()})
    return {
        "axes": {
            key: {"metric": a.metric, "direction": a.direction, "unit": _unit(a.metric)}
            for key, a in axes.items()
        },
        "interval": "95 %, as interval_basis of each point says",
        "bands": {group: _band_document(front, group) for group in front.groups},
        "members": front.members,
        "groups": front.groups,
        "excluded": {row["trial_id"]: row["excluded"] for row in rows if row["excluded"]},
        "points": rows,
    }


def _chance(front: Front, place: int) -> float | None:
    chance = float(front.probability[place])
    return None if chance != chance else chance


def _band_document(front: Front, group: str) -> dict[str, object]:
    """x, y, low and high along the band; null where nobody attains so much."""
    band = front.band(group)
    lists = {name: getattr(band, name).tolist() for name in ("x", "y", "low", "high")}
    return {**lists, "basis": band.basis, "taken_as_exact": band.exact}


def show_metrics(metrics: Mapping[str, MetricValue]) -> None:
    """Three digits and units; what is missing in one line with its reasons."""
    rows = [
        (name, number(m.value), _unit(name), _count(m.n), interval(m.low, m.high))
        for name, m in metrics.items()
        if m.value is not None
    ]
    show_table("metrics", ("metric", "value", "unit", "n", "95 %, within-run"), rows)
    reasons: dict[str, list[str]] = {}
    for name, m in metrics.items():
        if m.value is None:
            reasons.setdefault(m.reason or "no reason kept", []).append(name)
    if reasons:
        said = [f"{', '.join(names)} ({why})" for why, names in reasons.items()]
        say(f"missing: {'; '.join(said)}")


def _id(point: pd.Series, ids: Mapping[str, str], room: bool) -> str:
    whole = str(point["trial_id"])
    return whole if room else ids[whole]


def _cell(point: pd.Series, metric: str, room: bool) -> str:
    if room:
        return measured(point, metric)
    ends = (point.get(f"{metric}.{end}") for end in ("low", "high"))
    spread = interval_words(*ends, int(point.get("repeats", 1)))
    return f"{number(point[metric])} ({spread})" if spread else number(point[metric])


def _number(point: pd.Series, metric: str) -> dict[str, object]:
    parts = {part: point.get(f"{metric}.{part}") for part in ("low", "high", "n", "reason")}
    return {"value": point.get(metric), **parts}


def _heading(metric: str, room: bool) -> str:
    spec = METRICS.get(metric)
    return SHORT[metric] if metric in SHORT and not room else spec.heading if spec else metric


def show_foreign(numbers: Sequence[ForeignNumber]) -> None:
    """Every cell of an imported result, under the name and with the meaning of its tool."""
    rows = [
        (
            one.key,
            one.value if isinstance(one.value, str) else number(one.value),
            one.unit,
            one.metric or MISSING,
            one.meaning,
        )
        for one in numbers
    ]
    show_table("what its file tells", ("its name", "value", "unit", "metric", "meaning"), rows)


def _count(n: int | None) -> str:
    return "not told" if n is None else str(n)


def _unit(metric: str) -> str:
    spec = METRICS.get(metric)
    return spec.unit if spec else ""


def _axes(point: pd.Series | pd.DataFrame) -> list[str]:
    names = point.index if point.ndim == 1 else point.columns
    return [str(name) for name in names if str(name).startswith("axis.")]


def point_cell(point: pd.Series) -> str:
    """A point as narrow tables name it: `c16 d5`."""
    return point_marks({name: point[name] for name in _axes(point)})


def points_legend(points: pd.DataFrame) -> str:
    """What the letters of `point_cell` stand for."""
    axes = dict.fromkeys(_axes(points))
    return marks_legend(axes) or ("settings by name" if axes else "one configuration")


def _same(points: pd.DataFrame) -> list[str]:
    """The axes that have one value at all of several points."""
    if len(points) < 2:
        return []
    return [name for name in _axes(points) if points[name].nunique(dropna=False) == 1]


def _all_with(points: pd.DataFrame, same: Sequence[str], group: str) -> str:
    """Those values, but for what the name of the group tells already."""
    told = points[list(same)].astype(object).iloc[0] if same else {}
    left = {n: v for n, v in told.items() if f"{n.removeprefix('axis.')}={v}" not in group}
    return f"; all: {point_words(left)}" if left else ""
