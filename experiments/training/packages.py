"""The packages that the corpus is read from, their exact versions and their licences.

Every licence here is permissive: a model trained on the text may ship under Apache-2.0. Debian
versions are those of the bookworm archive (not of its security archive, which keeps no old
version).
"""

from __future__ import annotations

import io
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from experiments.errors import ExperimentError


class CorpusError(ExperimentError):
    """The corpus cannot be built: a package that cannot be fetched, a kind with too little text."""


class Form(StrEnum):
    """Where a package comes from and how it is packed."""

    DEBIAN = "debian"
    SDIST = "sdist"
    WHEEL = "wheel"
    NPM = "npm"


@dataclass(frozen=True)
class Package:
    """One package at one version. `licence` is an SPDX identifier where there is one."""

    form: Form
    name: str
    version: str
    licence: str

    @property
    def title(self) -> str:
        """Name and version as the manifest and the data card spell them."""
        return f"{self.name} {self.version} ({self.form})"


def _packages(form: Form, rows: Sequence[tuple[str, str, str]]) -> dict[str, Package]:
    return {name: Package(form, name, version, licence) for name, version, licence in rows}


DEBIAN = _packages(
    Form.DEBIAN,
    [
        ("apache2-doc", "2.4.68-1~deb12u1", "Apache-2.0"),
        ("dict-devil", "1.0-13.1", "public domain"),
        ("dict-jargon", "4.4.7-3.1", "public domain"),
        ("libpython3.11-minimal", "3.11.2-6+deb12u8", "PSF-2.0"),
        ("libpython3.11-stdlib", "3.11.2-6+deb12u8", "PSF-2.0"),
        ("libpython3.11-testsuite", "3.11.2-6+deb12u8", "PSF-2.0"),
        ("llvm-14-doc", "1:14.0.6-12", "Apache-2.0 WITH LLVM-exception"),
        ("nodejs-doc", "18.20.4+dfsg-1~deb12u2", "MIT"),
        ("postgresql-doc-15", "15.18-0+deb12u1", "PostgreSQL"),
        ("python-pandas-doc", "1.5.3+dfsg-2", "BSD-3-Clause"),
        ("python-sklearn-doc", "1.2.1+dfsg-1", "BSD-3-Clause"),
        ("python3.11-doc", "3.11.2-6+deb12u8", "PSF-2.0"),
        ("rust-doc", "1.63.0+dfsg1-2", "MIT OR Apache-2.0"),
        ("sqlite3-doc", "3.40.1-2+deb12u2", "public domain"),
        ("sword-comm-mhcc", "2.0-1", "public domain"),
        ("wordnet-base", "1:3.0-37", "WordNet-3.0"),
    ],
)
SDIST = _packages(
    Form.SDIST,
    [
        ("Django", "5.2.6", "BSD-3-Clause"),
        ("Flask", "3.1.2", "BSD-3-Clause"),
        ("SQLAlchemy", "2.0.43", "MIT"),
        ("Scrapy", "2.13.3", "BSD-3-Clause"),
        ("Sphinx", "8.2.3", "BSD-2-Clause"),
        ("Twisted", "25.5.0", "MIT"),
        ("Werkzeug", "3.1.3", "BSD-3-Clause"),
        ("aiohttp", "3.12.15", "Apache-2.0"),
        ("attrs", "25.3.0", "MIT"),
        ("celery", "5.5.3", "BSD-3-Clause"),
        ("click", "8.2.1", "BSD-3-Clause"),
        ("falcon", "4.1.0", "Apache-2.0"),
        ("litestar", "2.17.0", "MIT"),
        ("networkx", "3.5", "BSD-3-Clause"),
        ("pytest", "8.4.2", "MIT"),
        ("salt", "3007.8", "Apache-2.0"),
        ("sympy", "1.14.0", "BSD-3-Clause"),
        ("tornado", "6.5.2", "Apache-2.0"),
        ("trio", "0.31.0", "MIT OR Apache-2.0"),
        ("wagtail", "7.1", "BSD-3-Clause"),
    ],
)
WHEEL = _packages(
    Form.WHEEL,
    [
        ("botocore", "1.40.30", "Apache-2.0"),
        ("matplotlib", "3.10.6", "PSF-2.0"),
        ("numpy", "2.3.3", "BSD-3-Clause"),
        ("pandas", "2.3.2", "BSD-3-Clause"),
        ("scikit-learn", "1.7.2", "BSD-3-Clause"),
        ("scipy", "1.16.2", "BSD-3-Clause"),
        ("transformers", "4.56.1", "Apache-2.0"),
    ],
)
NPM = _packages(
    Form.NPM,
    [
        ("@mdn/browser-compat-data", "6.1.4", "CC0-1.0"),
        ("@octokit/openapi", "19.1.0", "MIT"),
    ],
)


def fetch(package: Package, cache_dir: Path) -> Path:
    """Return the archive of `package` under `cache_dir`, downloaded if it is not there yet.

    Uses the ordinary clients (apt-get, pip, npm). Raises CorpusError with the client's last words.
    """
    folder = cache_dir / package.form / f"{package.name.replace('/', '-')}-{package.version}"
    folder.mkdir(parents=True, exist_ok=True)
    if not list(folder.iterdir()):
        _download(package, folder)
    archives = sorted(path for path in folder.iterdir() if path.is_file())
    if len(archives) != 1:
        raise CorpusError(
            f"{package.title}: {len(archives)} archives in {folder}, one was expected. "
            "Empty the folder and build again."
        )
    return archives[0]


def _download(package: Package, folder: Path) -> None:
    exact = f"{package.name}=={package.version}"
    pip = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", "."]
    commands = {
        Form.DEBIAN: ["apt-get", "download", "-qq", f"{package.name}={package.version}"],
        Form.SDIST: [*pip, "--no-binary", package.name, exact],
        Form.WHEEL: [*pip, "--only-binary", ":all:", "--python-version", "3.11", exact],
        Form.NPM: ["npm", "pack", "--silent", f"{package.name}@{package.version}"],
    }
    done = subprocess.run(
        commands[package.form], cwd=folder, capture_output=True, text=True, check=False
    )
    if done.returncode:
        last_words = (done.stderr or done.stdout).strip()[-400:]
        raise CorpusError(
            f"{package.title} could not be downloaded: {last_words} "
            "Check the package index (apt-get update for Debian packages)."
        )


def members(archive: Path) -> Iterator[tuple[str, bytes]]:
    """Yield (path in the archive, content) of every regular file, in the archive's order.

    Reads .deb (through dpkg-deb), .whl and .tar.gz or .tgz files.
    """
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as wheel:
            for name in wheel.namelist():
                yield name, wheel.read(name)
        return
    if archive.suffix == ".deb":
        unpack = ["dpkg-deb", "--fsys-tarfile", str(archive)]
        raw = subprocess.run(unpack, capture_output=True, check=True).stdout
        tar = tarfile.open(fileobj=io.BytesIO(raw))  # noqa: SIM115 - closed by the with below
    else:
        tar = tarfile.open(archive)  # noqa: SIM115 - closed by the with below
    with tar:
        for member in tar:
            if member.isfile():
                content = tar.extractfile(member)
                yield member.name, content.read() if content else b""
