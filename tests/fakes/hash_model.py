"""A model whose next token hashes every cache row it reads back.

A row that is stale, foreign, missing or out of order changes the text, so text that equals
`expected_logits` over the plain tokens proves that blocks, slots, rings, chunks, rejected
drafts and replays were all handled as the protocol says. Its drafts are right about two times
in three.
"""

from dataclasses import dataclass, field

import numpy as np
import torch

from engine.batch import DraftOutput, ForwardOutput
from engine.cache.groups import PagedGroup, RingGroup, RowFormat
from engine.errors import CheckpointError
from engine.models.protocol import ModelFacts

FACTS = ModelFacts(
    vocab_size=23,
    max_positions=64,
    eos_token_id=1,
    window=4,
    draft_block=3,
    ngram=3,
    can_truncate=True,
)

STAGES = 4  # window over window, so that rows far beyond one window matter

_U = np.uint64


def _mix(word):
    word = np.atleast_1d(np.asarray(word, dtype=_U))  # scalars would warn of wrapping
    word = (word ^ (word >> _U(30))) * _U(0xBF58476D1CE4E5B9)
    word = (word ^ (word >> _U(27))) * _U(0x94D049BB133111EB)
    return word ^ (word >> _U(31))


def _fold(tag, rows):
    """Hash of rows [n, 2], in order."""
    rows = np.asarray(rows, dtype=np.float64).reshape(-1, 2).astype(np.int64).astype(_U)
    index = np.arange(1, len(rows) + 1, dtype=_U) * _U(0x9E3779B97F4A7C15)
    return _mix(_mix(_mix(rows[:, 0] + index) + rows[:, 1]) + _U(tag)).sum(dtype=_U)


def _logits(parts, vocab):
    word = _mix(np.sum(np.array(parts, dtype=_U), dtype=_U))[0]
    noise = _mix(word + np.arange(1, vocab + 1, dtype=_U))
    logits = (noise >> _U(40)).astype(np.float64) * (2.0 / 2**24)
    logits[int(word % _U(vocab))] += 2.5
    return logits


def expected_logits(tokens, decoder_start, facts=FACTS):
    """Logits after the last of `tokens`, from nothing but the tokens."""
    rows = [(token, position) for position, token in enumerate(tokens)]
    pairs = [
        (tokens[2 * j] * facts.vocab_size + tokens[2 * j + 1], j) for j in range(len(tokens) // 2)
    ]
    window = rows[decoder_start:]
    for stage in range(STAGES):
        window = [
            _mixed(stage, window[max(0, i + 1 - facts.window) : i + 1]) for i in range(len(window))
        ]
    back = [tokens[-1 - j] if len(tokens) > j else -1 for j in range(1, facts.ngram)]
    parts = [_fold(1, rows), _fold(2, pairs), _fold(3, window[-1:]), _lookback(back)]
    return _logits(parts, facts.vocab_size)


def _mixed(stage, rows):
    """The row of the next window stage: what a decoder layer makes of the rows it sees."""
    word = int(_fold(10 + stage, rows))
    return (word & 0xFFFFF, word >> 44)


def _lookback(back):
    return _fold(4, [(value + 7, j) for j, value in enumerate(back)])


@dataclass
class HashModel:
    """The protocol of `engine.models.protocol.Model`, on a CPU."""

    can_capture = False
    can_capture_chunks = False

    facts: ModelFacts = FACTS
    rows_run: list[int] = field(default_factory=list)  # rows of each forward
    fail_on: int | None = None  # a prompt holding this token makes the forward raise
    nan_on: int | None = None  # logits after this token are not finite

    def cache_groups(self, *, max_backtrack):
        plain = RowFormat.PLAIN
        window = self.facts.window + max_backtrack
        return (
            PagedGroup(name="all", width=2, tokens_per_row=1, row_format=plain),
            PagedGroup(name="pair", width=2, tokens_per_row=2, row_format=plain),
            RingGroup(name="tail", width=2, rows=max_backtrack + 2, row_format=plain),
            *(
                RingGroup(name=f"window.{stage}", width=2, rows=window, row_format=plain)
                for stage in range(STAGES)
            ),
            RingGroup(name="context", width=2, rows=self.facts.max_positions, row_format=plain),
        )

    def forward(self, batch, caches, capture=None):
        self.rows_run.append(len(batch.token_ids))
        tokens = batch.token_ids.tolist()
        if self.fail_on in tokens:
            raise RuntimeError("the device fell over")
        total = len(tokens)
        kept = range(total) if batch.decoder_rows is None else batch.decoder_rows.tolist()
        wanted = batch.logit_rows.tolist()
        assert set(wanted) <= set(kept), "logits are wanted of rows the decoder skips"
        assert batch.sequence_index.tolist() == sorted(batch.sequence_index.tolist())
        found = {row: self._row(batch, caches, row, row in set(kept)) for row in range(total)}
        if not wanted:
            return ForwardOutput(logits=torch.zeros(0, self.facts.vocab_size))
        logits = torch.from_numpy(np.stack([found[row] for row in wanted]))
        return ForwardOutput(logits=logits)

    def _row(self, batch, caches, row, is_kept):
        r = int(batch.sequence_index[row])
        token, position = int(batch.token_ids[row]), int(batch.positions[row])
        behind = 0 if batch.behind is None else int(batch.behind[r])
        assert position == batch.context_length[r] - behind + row - batch.query_start[r]
        read = _Reader(caches, batch.block_table[r].tolist(), int(batch.slots[r]))
        read.put_paged("all", position, (token, position))
        read.put_ring("tail", position, (token, position))
        read.put_ring("context", position, (token, position))
        if position % 2:
            even = read.ring("tail", [position - 1])[0]
            read.put_paged(
                "pair", position // 2, (even[0] * self.facts.vocab_size + token, position // 2)
            )
        window = self._run_decoder(batch, r, read, (token, position)) if is_kept else ()
        if self.nan_on == token:
            return np.full(self.facts.vocab_size, np.nan)
        parts = [
            _fold(1, read.paged("all", position + 1)),
            _fold(2, read.paged("pair", (position + 1) // 2)),
            _fold(3, window),
            _lookback(batch.lookback_ids[row].tolist()),
        ]
        return _logits(parts, self.facts.vocab_size)

    def _run_decoder(self, batch, r, read, row):
        position = row[1]
        floor = max(batch.decoder_start[r], position + 1 - self.facts.window)
        for stage in range(STAGES):
            read.put_ring(f"window.{stage}", position, row)
            row = _mixed(stage, read.ring(f"window.{stage}", range(floor, position + 1)))
        return [row]

    def draft(self, batch, caches):
        guesses = []
        for r, slot in enumerate(batch.slots.tolist()):
            anchor = int(batch.anchor_positions[r])
            read = _Reader(caches, [], slot)
            context = read.ring("context", range(anchor))
            assert context[:, 1].tolist() == list(range(anchor)), "stale context"
            tokens = [*context[:, 0].astype(int).tolist(), int(batch.anchor_ids[r])]
            for _ in range(batch.draft_length):
                best = int(
                    expected_logits(tokens, int(batch.decoder_start[r]), self.facts).argmax()
                )
                is_wrong = int(_mix(len(tokens) * 31 + tokens[-1])[0]) % 3 == 0
                tokens.append((best + is_wrong) % self.facts.vocab_size)
            guesses.append(tokens[-batch.draft_length :])
        ids = torch.tensor(guesses)
        return DraftOutput(
            token_ids=ids,
            logits=torch.zeros(*ids.shape, self.facts.vocab_size),
            confidence=torch.zeros(ids.shape),
        )


@dataclass
class _Reader:
    """Rows of one sequence."""

    caches: object
    blocks: list
    slot: int

    def _paged_rows(self, name, logical):
        per_block = self.caches.rows_per_block(name)
        logical = np.asarray(logical, dtype=np.int64)
        blocks = np.asarray(self.blocks)
        return blocks[logical // per_block] * per_block + logical % per_block

    def _ring_rows(self, name, positions):
        rows = self.caches.groups[name].rows
        return self.slot * rows + np.asarray(positions, dtype=np.int64) % rows

    def put_paged(self, name, logical, values):
        row = self._paged_rows(name, [logical])
        self.caches.tensors[name].numpy()[row] = values

    def put_ring(self, name, position, values):
        self.caches.tensors[name].numpy()[self._ring_rows(name, [position])] = values

    def paged(self, name, count):
        return self.caches.tensors[name].numpy()[self._paged_rows(name, range(count))]

    def ring(self, name, positions):
        return self.caches.tensors[name].numpy()[self._ring_rows(name, positions)]


@dataclass(frozen=True)
class HashSource:
    """`engine.models.registry.ModelSource` of hash models; a value, so it pickles."""

    model: ModelFacts = FACTS
    fail_on: int | None = None
    nan_on: int | None = None
    refuse: bool = False  # to load, as a damaged checkpoint does

    def facts(self, config):
        return self.model

    def load(self, resolved, accelerator):
        if self.refuse:
            raise CheckpointError("lacks the tensor head.weight", where=resolved.config.model)
        return HashModel(self.model, fail_on=self.fail_on, nan_on=self.nan_on)
