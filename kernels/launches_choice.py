"""Kernels that choose tokens, as their launchers start them. See `kernels.launches`."""

from __future__ import annotations

from collections.abc import Iterator

from kernels.launches import Launch, typed


def choice_launches() -> Iterator[Launch]:
    """Every kernel that chooses, at the sizes of DeepSeek-V4.1-Flash."""
    yield from _sampling()
    yield from _verification()
    yield from _kept()
    yield from _logprobs()


def _sampling() -> Iterator[Launch]:
    sampling = "kernels.sampling.triton_cuda"
    nucleus = "kernels.sampling.triton_nucleus"
    types = (
        typed("logits tops highest shares groups chain masses", "*fp32")
        | typed("positions seeds top_k token_ids", "*i64")
        | typed("temperatures top_p min_p", "*fp64")
        | {"held": "*u32", "is_finite": "*i1"}
        | typed("held_at chosen chain_ids ends counts", "*i32")
        | typed("vocab row_stride parts", "i32")
    )
    even = ("vocab", "row_stride")
    padded = {"PARTS": 32, "SLOTS": 8}
    for each in (1, 6):
        parted = {"EARLY": True, "EACH": each, "PART": 4096}
        for has_narrowing in (False, True):
            kind = {"HAS_NARROWING": has_narrowing, "GROUP": 32, "GROUPS": 4040}
            yield Launch(
                address=f"{sampling}:scan_kernel", types=types, constants=parted | kind, even=even
            )
            yield Launch(
                address=f"{sampling}:choose_kernel",
                types=types,
                constants=parted | kind | padded | {"ROOM": 4096, "STEP": 4096},
                warps=16 if has_narrowing else 8,
                even=even,
            )
        yield Launch(
            address=f"{nucleus}:count_kernel", types=types, constants=parted | padded, even=even
        )
        yield Launch(
            address=f"{nucleus}:decide_kernel",
            types=types,
            constants=parted | padded | {"STEP": 4096},
            warps=16,
            even=even,
        )
    yield Launch(
        address=f"{sampling}:highest_kernel",
        types=types | {"token_ids": "*i32"},
        constants={"PART": 4096},
        even=("vocab", "row_stride"),
    )
    yield Launch(
        address=f"{sampling}:highest_part_kernel",
        types=types | {"part_ids": "*i32"},
        constants={"PARTS": 32},
        warps=1,
    )


def _verification() -> Iterator[Launch]:
    verification = "kernels.verification.triton_cuda"
    types = (
        typed("guesses counts row", "*i64")
        | {"tops": "*fp32", "part_ids": "*i32"}
        | typed("sequences parts", "i32")
    )
    for rows in (1, 6):
        sizes = {"ROWS": rows, "BLOCK": 1 if rows == 1 else 8}
        yield Launch(
            address=f"{verification}:judge_highest_kernel",
            types=types,
            constants=sizes | {"PARTS": 32},
            warps=1,
        )
        yield Launch(address=f"{verification}:judge_kernel", types=types, constants=sizes, warps=1)


def _kept() -> Iterator[Launch]:
    yield Launch(
        address="kernels.verification.triton_cuda:keep_kernel",
        types=typed("ring lengths slots first tokens accepted", "*i64")
        | typed("count width old", "i32"),
        constants={"BLOCK": 8},
        warps=1,
    )


def _logprobs() -> Iterator[Launch]:
    logprobs = "kernels.logprobs.triton_cuda"
    types = (
        typed("logits highest sums of_token top_logprobs", "*fp32")
        | typed("rows token_ids top_ids", "*i64")
        | {"best": "*u64"}
        | typed("row_stride vocab parts top", "i32")
    )
    for has_top in (False, True):
        yield Launch(
            address=f"{logprobs}:part_kernel",
            types=types,
            constants={"HAS_TOP": has_top, "PART": 4096},
            warps=8,
            even=("row_stride", "vocab"),
        )
        yield Launch(
            address=f"{logprobs}:row_kernel",
            types=types,
            constants={"HAS_TOP": has_top, "PARTS": 32, "ROOM": 1024 if has_top else 32},
            even=("row_stride",),
        )
