"""Packages: what an archive holds, and archives that are not as they should be."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
import zipfile
import zlib

import pytest

from experiments.training import extraction, packages
from experiments.training.document import Document
from experiments.training.holdout import source_unit
from experiments.training.packages import SDIST, CorpusError
from experiments.training.sources import Kind


def test_members_of_a_wheel_and_of_a_tarball_are_read_alike(tmp_path):
    wheel, tarball = tmp_path / "a.whl", tmp_path / "a.tar.gz"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("a/b.py", "x = 1\n")
    with tarfile.open(tarball, "w:gz") as archive:
        entry = tarfile.TarInfo("a/b.py")
        entry.size = 6
        archive.addfile(entry, io.BytesIO(b"x = 1\n"))
        folder = tarfile.TarInfo("a/c")
        folder.type = tarfile.DIRTYPE
        archive.addfile(folder)
    assert list(packages.members(wheel)) == [("a/b.py", b"x = 1\n")]
    assert list(packages.members(tarball)) == [("a/b.py", b"x = 1\n")]


def test_archive_in_the_cache_is_not_fetched_again(tmp_path):
    package = SDIST["click"]
    folder = tmp_path / "sdist" / f"click-{package.version}"
    folder.mkdir(parents=True)
    (folder / "click.tar.gz").write_bytes(b"kept")
    assert packages.fetch(package, tmp_path) == folder / "click.tar.gz"


def test_two_archives_of_one_package_are_refused(tmp_path):
    package = SDIST["click"]
    folder = tmp_path / "sdist" / f"click-{package.version}"
    folder.mkdir(parents=True)
    (folder / "a.tar.gz").write_bytes(b"")
    (folder / "b.tar.gz").write_bytes(b"")
    with pytest.raises(CorpusError, match="one was expected"):
        packages.fetch(package, tmp_path)


def test_large_service_description_becomes_small_documents_of_one_unit():
    shapes = {f"Shape{i}": {"type": "string", "documentation": "x" * 300} for i in range(40)}
    packed = gzip.compress(json.dumps({"operations": {}, "shapes": shapes}).encode())
    pieces = list(extraction.service_model("s.json.gz", packed))
    documents = [Document(Kind.JSON, "p", origin, text) for origin, text in pieces]
    assert len(documents) > 5
    assert {source_unit(document) for document in documents} == {"p:s.json.gz"}
    merged = {}
    for _, text in pieces:
        assert len(text) < 4000
        merged |= json.loads(text)
    assert merged == shapes


def test_compressed_books_are_read_past_the_bytes_between_them():
    books = [b"<div>In the <i>beginning</i></div><p>And so on</p>", b"<p>Second</p>"]
    content = zlib.compress(books[0]) + b"\x78\x9c\x00junk" + zlib.compress(books[1])
    texts = [text for _, text in extraction.sword("ot.bzz", content)]
    assert texts == ["In the beginning\n\nAnd so on", "Second"]


@pytest.mark.parametrize(
    ("origin", "unit"),
    [
        ("package/data.json#api.Node/0", "package/data.json#api.Node"),
        ("package/data.json#api.Node.childNodes/2", "package/data.json#api.Node"),
        ("api.json#schemas.simple-user/0", "api.json#schemas.simple-user"),
        ("api.json#/repos/{owner}/issues.get/1", "api.json#/repos/{owner}/issues"),
        ("plain/file.json", "plain/file.json"),
    ],
)
def test_pieces_of_one_entry_are_one_unit(origin, unit):
    assert source_unit(Document(Kind.JSON, "p", origin, "{}")) == f"p:{unit}"
