"""What the corpus takes from which package: members, reader and the most it may give."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from experiments.training import extraction as read
from experiments.training.extraction import Reader
from experiments.training.packages import DEBIAN, NPM, SDIST, WHEEL, Package


class Kind(StrEnum):
    """The four kinds of text that the checkpoint learns and is measured on."""

    ENGLISH = "english"
    CODE = "code"
    JSON = "json"
    CHAT = "chat"


@dataclass(frozen=True)
class Source:
    """Members of `package` that match a pattern: at most `cap_bytes` of text, the last file whole.

    `avoid` names parts of a member's path that exclude it: vendored text under another licence, or
    no text.
    """

    package: Package
    kind: Kind
    patterns: tuple[str, ...]
    reader: Reader
    cap_bytes: int
    avoid: tuple[str, ...] = ()


_MB = 1_000_000
_DOC = "./usr/share/doc"
_VENDORED = ("_vendor", "vendored", "externals/", "extern/", "license", "copying", "requirements")

_DEBIAN_TEXT = [
    ("python3.11-doc", "*/_sources/*.txt", read.plain, 8 * _MB, ()),
    ("llvm-14-doc", "*/_sources/*.txt", read.plain, 4 * _MB, ("doxygen", "ocaml")),
    ("python-sklearn-doc", "*/_sources/*.txt", read.plain, 3 * _MB, ("modules/generated",)),
    ("python-pandas-doc", "*/_sources/*.txt", read.plain, 3 * _MB, ("reference/api", "cookbook")),
    ("sqlite3-doc", "*.html", read.html, 8 * _MB, ("matrix", "session/", "releaselog")),
    ("postgresql-doc-15", "*/html/*.html", read.html, 8 * _MB, ()),
    ("apache2-doc", "*/manual/en/*.html", read.html, 5 * _MB, ()),
    ("nodejs-doc", "*/api/*.html", read.html, 4 * _MB, ("all.html",)),
    ("dict-devil", "*.dict.dz", read.dictionary, _MB, ()),
    ("dict-jargon", "*.dict.dz", read.dictionary, 2 * _MB, ()),
    ("sword-comm-mhcc", "*.bzz", read.sword, 6 * _MB, ()),
]
_RUST_BOOKS = ("book", "edition-guide", "embedded-book", "nomicon", "reference", "rustc", "rustdoc")
_SDIST_DOCS = [
    ("Django", "*/docs/*.txt"),
    ("Flask", "*/docs/*.rst"),
    ("SQLAlchemy", "*/doc/*.rst"),
    ("Scrapy", "*/docs/*.rst"),
    ("Sphinx", "*/doc/*.rst"),
    ("Twisted", "*/docs/*.rst"),
    ("Werkzeug", "*/docs/*.rst"),
    ("attrs", "*/docs/*.md"),
    ("celery", "*/docs/*.rst"),
    ("click", "*/docs/*.[rm][sd]*"),
    ("falcon", "*/docs/*.rst"),
    ("networkx", "*/doc/*.rst"),
    ("pytest", "*/doc/*.rst"),
    ("salt", "*/doc/*.rst"),
    ("sympy", "*/doc/*.rst"),
    ("tornado", "*/docs/*.rst"),
    ("trio", "*/docs/*.rst"),
]
_CODE = [
    (DEBIAN["libpython3.11-minimal"], 3 * _MB),
    (DEBIAN["libpython3.11-stdlib"], 5 * _MB),
    (DEBIAN["libpython3.11-testsuite"], 2 * _MB),
    (SDIST["Django"], 4 * _MB),
    (SDIST["SQLAlchemy"], 2 * _MB),
    (SDIST["Scrapy"], 2 * _MB),
    (SDIST["Sphinx"], 2 * _MB),
    (SDIST["Twisted"], 3 * _MB),
    (SDIST["aiohttp"], 1 * _MB),
    (SDIST["celery"], 1 * _MB),
    (SDIST["litestar"], 1 * _MB),
    (SDIST["networkx"], 2 * _MB),
    (SDIST["pytest"], 1 * _MB),
    (SDIST["sympy"], 3 * _MB),
    (SDIST["tornado"], 1 * _MB),
    (SDIST["trio"], 1 * _MB),
    (SDIST["wagtail"], 1 * _MB),
    (WHEEL["matplotlib"], 2 * _MB),
    (WHEEL["numpy"], 2 * _MB),
    (WHEEL["pandas"], 3 * _MB),
    (WHEEL["scikit-learn"], 2 * _MB),
    (WHEEL["scipy"], 2 * _MB),
    (WHEEL["transformers"], 2 * _MB),
]
_JSON = [
    (WHEEL["botocore"], ("*/service-2.json.gz",), read.service_model, 9 * _MB),
    (NPM["@mdn/browser-compat-data"], ("package/data.json",), read.compat_table, 2 * _MB),
    (NPM["@octokit/openapi"], ("*/api.github.com.json",), read.api_description, 5 * _MB),
]

WORDNET = DEBIAN["wordnet-base"]
WORDNET_MEMBERS = tuple(
    f"./usr/share/wordnet/data.{part}" for part in ("adj", "adv", "noun", "verb")
)
WORDNET_CAP_BYTES = 6 * _MB
"""English and chat share WordNet by synset (see `corpus`), so it is no row of `SOURCES`."""

SOURCES: tuple[Source, ...] = (
    *(
        Source(DEBIAN[name], Kind.ENGLISH, (pattern,), reader, cap, avoid)
        for name, pattern, reader, cap, avoid in _DEBIAN_TEXT
    ),
    Source(
        DEBIAN["rust-doc"],
        Kind.ENGLISH,
        tuple(f"{_DOC}/rust-doc/html/{book}/*.html" for book in _RUST_BOOKS),
        read.html,
        5 * _MB,
        ("print.html", "lints/listing"),
    ),
    *(
        Source(SDIST[name], Kind.ENGLISH, (pattern,), read.plain, 4 * _MB, _VENDORED)
        for name, pattern in _SDIST_DOCS
    ),
    *(Source(package, Kind.CODE, ("*.py",), read.plain, cap, _VENDORED) for package, cap in _CODE),
    *(
        Source(package, Kind.JSON, patterns, reader, cap)
        for package, patterns, reader, cap in _JSON
    ),
)
