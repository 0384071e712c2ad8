"""What a Hugging Face model folder says of itself, for engines that are not ours.

One reading for all of them: peers that serve the same folder get the same facts, and with them
the same prompts.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from engine.errors import CheckpointError
from experiments.records import AxisValue
from experiments.targets.base import TargetFacts
from experiments.targets.checkpoint import model_directory
from experiments.targets.http_tokenizer import FILE, ClientTokenizer

_CONTEXT = ("max_position_embeddings", "n_positions", "max_seq_len")
_SPECIAL = ("eos_token_id", "bos_token_id")  # as our own engine reserves them


@dataclass(frozen=True, kw_only=True)
class ModelFolder:
    """One folder, read once: its configuration, its tokenizer, the identity of its weights."""

    path: Path
    fingerprint: str
    vocab_size: int
    max_positions: int | None
    eos_token_id: int | None
    special_ids: tuple[int, ...]
    random_weights: bool
    tokenizer: ClientTokenizer | None  # None: the folder has no tokenizer.json

    def facts(
        self,
        configuration: Mapping[str, AxisValue],
        *,
        accelerator: str | None,
        remote: bool,
        max_positions: int | None = None,
        devices: int = 1,
    ) -> TargetFacts:
        """Facts of an engine that serves this folder; `max_positions` where it takes fewer."""
        known = [n for n in (max_positions, self.max_positions) if n is not None]
        return TargetFacts(
            model=str(self.path),
            fingerprint=self.fingerprint,
            configuration=configuration,
            vocab_size=self.vocab_size,
            eos_token_id=self.eos_token_id,
            reserved_token_ids=self.special_ids,
            window=None,
            draft_block=None,
            can_truncate=False,
            max_positions=min(known, default=None),
            devices=devices,
            accelerator=accelerator,
            random_weights=self.random_weights,
            tokenizer_hash=self.tokenizer.hash if self.tokenizer else None,
            remote=remote,
        )

    def need_tokenizer(self) -> ClientTokenizer:
        """CheckpointError where the folder has none and the workload is text."""
        if self.tokenizer is None:
            raise CheckpointError(
                f"has no {FILE}, and the workload is text.",
                where=str(self.path),
                remedy=f"Add its {FILE}, or ask for random ids.",
            )
        return self.tokenizer


def read_model_folder(model: str) -> ModelFolder:
    """CheckpointError where there is no such folder, or its config.json cannot be read."""
    from engine.checkpoint_directory import is_random
    from engine.models.shards import fingerprint

    path = model_directory(model).resolve()
    config = _config(path)
    eos = config.get("eos_token_id")
    special = (one for name in _SPECIAL for one in _ids(config.get(name)))
    return ModelFolder(
        path=path,
        fingerprint=fingerprint(path),
        vocab_size=_count(config, "vocab_size", path),
        max_positions=next((n for name in _CONTEXT if (n := _ids(config.get(name)))), (None,))[0],
        eos_token_id=next(iter(_ids(eos)), None),
        special_ids=tuple(sorted(set(special))),
        random_weights=is_random(path),
        tokenizer=ClientTokenizer(str(path)) if (path / FILE).is_file() else None,
    )


def _config(path: Path) -> Mapping[str, object]:
    file = path / "config.json"
    try:
        document: object = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise CheckpointError(
            f"cannot be read: {error}.",
            where=str(file),
            remedy="Give the folder of a model in Hugging Face form.",
        ) from error
    if not isinstance(document, Mapping):
        raise CheckpointError("is no JSON object.", where=str(file))
    found = cast("Mapping[str, object]", document)
    inner = found.get("text_config")
    return cast("Mapping[str, object]", inner) if isinstance(inner, Mapping) else found


def _ids(value: object) -> tuple[int, ...]:
    listed = cast("list[object]", value) if isinstance(value, list) else [value]
    return tuple(one for one in listed if isinstance(one, int) and not isinstance(one, bool))


def _count(config: Mapping[str, object], name: str, path: Path) -> int:
    found = _ids(config.get(name))
    if len(found) != 1 or found[0] < 1:
        raise CheckpointError(
            f"has no usable {name}: {config.get(name)!r}.", where=str(path / "config.json")
        )
    return found[0]
