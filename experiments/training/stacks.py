"""Parameters of one kind stacked over layers and experts.

An optimiser step or a rounding over a few dozen stacks costs a few dozen launches; over a
thousand matrices of the released names it would cost thousands. A group is named by the
released name with `*` for its numbers.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from engine.models.deepseek_v41.contract import parameters

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

    from engine.models.deepseek_v41.config import DeepseekV41Config
    from engine.models.deepseek_v41.contract import Storage

_NUMBER = re.compile(r"(?<=\.)\d+(?=\.)")
_OWN_SHAPE = "engram.embed"  # one table has more rows than the other


@dataclass(frozen=True, kw_only=True)
class Group:
    """Released parameters of one shape and storage, in the order of their numbers."""

    names: tuple[str, ...]
    shape: tuple[int, ...]
    storage: Storage

    @property
    def is_drafter(self) -> bool:
        """True for the DSpark stages, trained after the target is frozen."""
        return self.names[0].startswith("mtp.")


Layout = dict[str, Group]


def layout(config: DeepseekV41Config) -> Layout:
    """Return the groups of every parameter of the model."""
    table = parameters(config)
    found: dict[str, list[str]] = {}
    for name in table:
        key = name if _OWN_SHAPE in name else _NUMBER.sub("*", name)
        found.setdefault(key, []).append(name)
    return {
        key: Group(
            names=tuple(sorted(names, key=_numbers)),
            shape=table[names[0]].shape,
            storage=table[names[0]].storage,
        )
        for key, names in found.items()
    }


def _numbers(name: str) -> list[int]:
    return [int(number) for number in _NUMBER.findall(name)]


def stack(weights: Mapping[str, Tensor], groups: Layout) -> dict[str, Tensor]:
    """Stack tensors of released names: group -> [count, *shape]."""
    return {
        key: torch.stack([weights[name] for name in group.names]) for key, group in groups.items()
    }


def unstack(stacks: Mapping[str, Tensor], groups: Layout) -> dict[str, Tensor]:
    """Undo `stack`: released name -> a view of its stack."""
    return {
        name: tensor
        for key, group in groups.items()
        for name, tensor in zip(group.names, stacks[key].unbind(0), strict=True)
    }


def views(stacks: Mapping[str, Tensor], groups: Layout) -> dict[str, Tensor]:
    """Like `unstack`, but the experts of a layer stay together.

    They come as `layers.3.ffn.experts.w1` [experts, *shape]. Differentiable.
    """
    table: dict[str, Tensor] = {}
    for key, group in groups.items():
        if ".experts." not in key:
            table |= zip(group.names, stacks[key].unbind(0), strict=True)
            continue
        prefixes = list(dict.fromkeys(_expert_prefix(name) for name in group.names))
        together = stacks[key].unflatten(0, (len(prefixes), -1)).unbind(0)
        table |= zip(prefixes, together, strict=True)
    return table


def _expert_prefix(name: str) -> str:
    head, _, tail = name.partition(".experts.")
    return f"{head}.experts.{tail.split('.')[1]}"
