"""What compiled kernels are cached under: all that takes part in making them.

The cached file is machine code of one architecture. A driver loads it and makes nothing of it, so
that its version need not be in the key; it would have to be if PTX were cached.
"""

import hashlib
from pathlib import Path

import pytest

triton = pytest.importorskip("triton", reason="triton is not installed")

from triton.backends.compiler import GPUTarget  # noqa: E402
from triton.backends.nvidia import compiler as nvidia  # noqa: E402
from triton.compiler import ASTSource, compile, get_cache_key, make_backend  # noqa: E402
from triton.runtime.cache import triton_key  # noqa: E402

from kernels.rotary.triton_cuda import rotation_kernel  # noqa: E402

CUDA_MACHINE = 190  # of an ELF file
TYPES = {
    "positions": "*i64",
    "freqs": "*fp32",
    "cos": "*fp32",
    "sin": "*fp32",
    "width": "i32",
    "EARLY": "constexpr",
    "BLOCK": "constexpr",
}


def source(block=64):
    constants = {"EARLY": False, "BLOCK": block}
    names = rotation_kernel.arg_names
    places = {(names.index(name),): value for name, value in constants.items()}
    return ASTSource(fn=rotation_kernel, signature=TYPES, constexprs=places)


def key(arch=90, block=64, **options):
    backend = make_backend(GPUTarget("cuda", arch, 32))
    return get_cache_key(source(block), backend, backend.parse_options(options), {})


def test_kernels_are_cached_by_capability_source_constants_and_options():
    assert key() == key()
    assert len({key(), key(arch=100), key(block=32), key(num_warps=1)}) == 4


def test_kernels_are_cached_by_the_assembler(monkeypatch):
    before = key()
    monkeypatch.setattr(nvidia, "get_ptxas_version", lambda arch=80: "another")
    assert key() != before


def test_kernels_are_cached_by_the_compiler_itself():
    package = Path(triton.__file__).parent
    library = next((package / "_C").glob("libtriton.*so"))
    parts = (library, package / "compiler" / "compiler.py", package / "language" / "core.py")
    for path in parts:
        assert hashlib.sha256(path.read_bytes()).hexdigest() in triton_key(), path.name
    assert triton_key() in key()
    assert triton.__version__ in key()


def test_what_is_cached_is_machine_code_that_no_driver_compiles_again():
    made = compile(source(), target=GPUTarget("cuda", 90, 32))
    assert made.kernel == made.asm["cubin"]
    assert made.kernel[:4] == b"\x7fELF"
    assert int.from_bytes(made.kernel[18:20], "little") == CUDA_MACHINE
