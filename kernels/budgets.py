"""What each compiled kernel may take: `configs/budget/FAMILY.json`, one file a kernel family."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

FOLDER = Path(__file__).parent / "configs" / "budget"


@dataclass(frozen=True, kw_only=True)
class Resources:
    """What a compiled kernel takes. Bytes a thread for spills, bytes a block for shared memory."""

    registers: int
    spill_bytes: int
    shared_bytes: int


Budget = Mapping[str, Mapping[str, Resources]]
"""By family, then by kernel, configuration and device."""


def read(
    families: set[str] | None = None, folder: Path = FOLDER
) -> dict[str, dict[str, Resources]]:
    """The budgets of some families (None: of all that have any)."""
    files = sorted(folder.glob("*.json"))
    return {
        file.stem: {name: Resources(**r) for name, r in json.loads(file.read_text()).items()}
        for file in files
        if families is None or file.stem in families
    }


def write(found: Budget, families: set[str] | None = None, folder: Path = FOLDER) -> None:
    """Make what was found the budget of some families (None: of all); what was not found goes."""
    folder.mkdir(parents=True, exist_ok=True)
    for family in read(families, folder).keys() - found.keys():
        (folder / f"{family}.json").unlink()
    for family, kernels in found.items():
        text = json.dumps({name: asdict(r) for name, r in kernels.items()}, indent=1)
        (folder / f"{family}.json").write_text(text + "\n")


def faults(found: Budget, budget: Budget) -> Iterator[tuple[str, str]]:
    """Each kernel that exceeds its budget, has none, or is not compiled any more, with why."""
    for family, kernels in found.items():
        allowed = budget.get(family, {})
        for name, resources in kernels.items():
            excess = _excess(resources, allowed[name]) if name in allowed else "it has no budget"
            if excess:
                yield name, excess
    for family, kernels in budget.items():
        for name in kernels.keys() - found.get(family, {}).keys():
            yield name, f"nothing compiles it: {family}.json is older than the launches"


def _excess(found: Resources, allowed: Resources) -> str:
    limits = asdict(allowed)
    each = asdict(found).items()
    return "; ".join(
        f"{name} {value} > {limits[name]}" for name, value in each if value > limits[name]
    )
