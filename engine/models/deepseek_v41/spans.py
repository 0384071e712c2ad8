"""Which rows of a step belong together: plain numbers, worked out before any tensor."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from engine.batch import ForwardBatch

SHORT_ROWS = 8  # spans up to here share a tile with others; a verified draft has at most 6
_TILE_ELEMENTS = 1 << 23  # bound on the largest intermediate of one tile


@dataclass(frozen=True, kw_only=True)
class Span:
    """The rows of one sequence in a row set: consecutive, of consecutive positions."""

    sequence: int
    start: int  # first row in the set
    length: int
    first_position: int
    floor: int  # positions before it are invisible to the positions from it on

    @property
    def end_position(self) -> int:
        """One past the newest position."""
        return self.first_position + self.length


@dataclass(frozen=True, kw_only=True)
class TileCost:
    """Elements that attention needs: per query and context row, and per query at least."""

    window: int
    heads: int
    index_heads: int
    dense_rows: int  # global rows up to which a tile reads all of them for all its queries
    gathered: int  # elements of the rows that one query gathers beyond that

    def of_query(self, context: int) -> int:
        """Elements of one query over `context` global rows."""
        scores = self.heads * (self.window + min(context, self.dense_rows))
        index = self.index_heads * context
        return max(scores, index, self.gathered if context > self.dense_rows else 0)


def all_spans(batch: ForwardBatch, *, truncated: bool) -> tuple[Span, ...]:
    """Every row of the batch; `truncated` applies the window floors of the decoder half."""
    return tuple(
        Span(
            sequence=r,
            start=start,
            length=end - start,
            first_position=batch.context_length[r],
            floor=batch.decoder_start[r] if truncated else 0,
        )
        for r, (start, end) in enumerate(
            zip(batch.query_start[:-1], batch.query_start[1:], strict=True)
        )
        if end > start
    )


def kept_spans(batch: ForwardBatch) -> tuple[Span, ...]:
    """The decoder rows of each sequence: those from its floor on, which are its last.

    A sequence whose context the host overestimates has passed its floor long ago.
    """
    spans: list[Span] = []
    start = 0
    for span in all_spans(batch, truncated=True):
        skipped = max(0, span.floor - span.first_position)
        if skipped < span.length:
            kept = replace(
                span,
                start=start,
                length=span.length - skipped,
                first_position=span.first_position + skipped,
            )
            spans.append(kept)
            start += kept.length
    return tuple(spans)


def group_short(spans: Iterable[Span], cost: TileCost) -> list[tuple[Span, ...]]:
    """Short spans that one tile can hold: of about equal length, within the bound."""
    groups: list[tuple[Span, ...]] = []
    ordered = sorted(spans, key=lambda span: (span.length - 1).bit_length())
    for span in ordered:
        size = (span.length - 1).bit_length()
        fits = groups and (groups[-1][-1].length - 1).bit_length() == size
        if fits and _elements((*groups[-1], span), cost) <= _TILE_ELEMENTS:
            groups[-1] = (*groups[-1], span)
        else:
            groups.append((span,))
    return groups


def rows_of_tile(span: Span, cost: TileCost) -> int:
    """How many rows of a long span one tile takes."""
    bound = _TILE_ELEMENTS // cost.of_query(span.end_position)
    return max(1, min(bound, max(64, cost.window), span.length))


def _elements(spans: Sequence[Span], cost: TileCost) -> int:
    context = max(span.end_position for span in spans)
    rows = max(span.length for span in spans)
    return len(spans) * rows * cost.of_query(context)
