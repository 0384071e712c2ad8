"""Short answers and JSON values in the one spelling in which they are compared."""

from __future__ import annotations

import json
import re
import unicodedata
from typing import cast

from experiments.evals.numerals import plain


def normalised(text: str) -> str:
    """One spelling of characters and spaces, no case, no marks around."""
    said = unicodedata.normalize("NFKC", plain(text)).casefold()
    return re.sub(r"\s+", " ", said).strip(" \t*_`\"'$.,;:!()[]{}“”‘’")


def canonical(value: object) -> str:
    """One spelling of a JSON value: 1.0 is 1, and true is no number. ValueError for NaN."""
    return json.dumps(_whole(value), sort_keys=True, ensure_ascii=False, allow_nan=False)


def _whole(value: object) -> object:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, list):
        return [_whole(one) for one in cast("list[object]", value)]
    if isinstance(value, dict):
        return {name: _whole(one) for name, one in cast("dict[str, object]", value).items()}
    return value
