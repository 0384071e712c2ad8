"""What a page shows is in its address, so that a copied link shows the same."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape
from urllib.parse import urlencode

import streamlit as st

SHOWN = "address.shown"
MOST_AT_SIDE, MOST_ON_PHONE = 22, 36
"""Characters that a select box shows in these places, where longer ones are told below it."""


def link(page: str, **parameters: str | None) -> str:
    """A relative link to `page` ("" is the overview) that carries `parameters`."""
    given = {name: value for name, value in parameters.items() if value is not None}
    return f"./{page}?{urlencode(given)}" if given else f"./{page}"


def start() -> None:
    """Forget what the page before showed; call once a page run, first."""
    st.session_state[SHOWN] = {}


def show(name: str, value: str) -> None:
    """Keep what is shown, though the address leaves it out, for the link that is copied."""
    st.session_state.setdefault(SHOWN, {})[name] = value


def here() -> str:
    """The full address of what is shown now, the defaults of today in words."""
    query = urlencode(st.session_state.get(SHOWN, {}) | st.query_params.to_dict())
    base = (st.context.url or "").split("?")[0]
    return f"{base}?{query}" if query else base


def parameter(name: str) -> str | None:
    """One parameter of the address; None when it is absent."""
    return st.query_params.get(name)


def remember(name: str, value: str | None) -> None:
    """Put one parameter into the address, or take it out with None."""
    if value is not None:
        if st.query_params.get(name) != value:
            st.query_params[name] = value
    elif name in st.query_params:
        del st.query_params[name]


def choose(
    label: str,
    options: Sequence[str],
    name: str,
    *,
    default: str,
    words: Callable[[str], str] = str,
) -> str:
    """A select box whose choice is the parameter `name`; the default leaves the address clean."""
    asked = parameter(name)  # the empty text is a choice too
    index = options.index(default if asked is None or asked not in options else asked)
    picked = st.selectbox(label, options, index=index, key=f"choose.{name}", format_func=words)
    if len(told := words(picked)) > MOST_AT_SIDE:
        look = "wb-cut long" if len(told) > MOST_ON_PHONE else "wb-cut"
        st.html(f'<p class="{look}">{escape(told)}</p>')
    show(name, picked)
    remember(name, None if picked == default else picked)
    return picked


def choose_some(
    label: str, options: Sequence[str], name: str, *, words: Callable[[str], str] = str
) -> list[str]:
    """A filter whose kept values are the parameter `name`; nothing chosen keeps all."""
    asked = [value for value in (parameter(name) or "").split(",") if value in options]
    picked = st.multiselect(
        label, options, default=asked, key=f"some.{name}", format_func=words, placeholder="all"
    )
    remember(name, ",".join(picked) or None)
    return picked or list(options)
