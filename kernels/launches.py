"""Every kernel as its launcher starts it, at the sizes of DeepSeek-V4.1-Flash."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import product

POINTERS = (
    "*bf16", "*fp16", "*fp32", "*fp64", "*i1", "*i16", "*i32", "*i64",
    "*u8", "*u16", "*u32", "*u64",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Launch:
    """A kernel with the types of its arguments, as its launcher starts it."""

    address: str  # module:kernel
    types: Mapping[str, str]
    constants: Mapping[str, object] = field(default_factory=dict)
    warps: int = 4
    stages: int | None = None
    registers: int | None = None  # most of a thread
    even: tuple[str, ...] = ()  # counts that 16 divides, which the compiler is told at run time
    architectures: tuple[int, ...] = (90, 100)

    @property
    def options(self) -> dict[str, int]:
        """As the compiler takes them."""
        stages = {} if self.stages is None else {"num_stages": self.stages}
        most = {} if self.registers is None else {"maxnreg": self.registers}
        return {"num_warps": self.warps, **stages, **most}

    @property
    def family(self) -> str:
        """`norm`: the folder of its source."""
        return self.address.split(".")[1]

    @property
    def name(self) -> str:
        """`rms_norm_kernel BLOCK=8192`."""
        told = " ".join(f"{k}={v}" for k, v in self.constants.items())
        return f"{self.address.rpartition(':')[2]} {told}".strip()


def typed(names: str, kind: str) -> dict[str, str]:
    """The types of some arguments."""
    return dict.fromkeys(names.split(), kind)


def launches() -> Iterator[Launch]:
    """Every kernel at the sizes of DeepSeek-V4.1-Flash."""
    yield Launch(
        address="kernels.rotary.triton_cuda:rotate_kernel",
        types=typed("x out", "*bf16")
        | typed("cos sin", "*fp32")
        | typed("heads row_stride head_stride dim width turn_stride", "i32"),
        constants={"EARLY": True, "HEADS": 4, "BLOCK": 512},
    )
    yield Launch(
        address="kernels.rotary.triton_cuda:rotation_kernel",
        types={"positions": "*i64", "width": "i32"} | typed("freqs cos sin", "*fp32"),
        constants={"EARLY": True, "BLOCK": 64},
        warps=1,
    )
    yield from _experts()
    yield from _caches()
    yield from _hopper_attention()
    yield from _selection()
    yield from _hopper_selection()
    yield from _memory()


def _experts() -> Iterator[Launch]:
    routing, grouped = "kernels.routing.triton_cuda", "kernels.grouped_matmul.triton_cuda"
    for kind, parts, rows, block in (
        (1, 1, 16, 256),
        (1, 1, 64, 64),
        (1, 20, 128, 64),
        (2, 8, 64, 64),
    ):
        yield Launch(
            address=f"{routing}:gate_kernel",
            types=typed("x", "*bf16")
            | {"partial": "*fp32", "weight": "*fp32" if kind == 2 else "*bf16"}
            | typed("rows width experts row_blocks expert_blocks", "i32"),
            constants={
                "EARLY": True, "KIND": kind, "PARTS": parts, "ROWS": rows, "EXPERTS": 64,
                "SLICE": 256, "BLOCK": block,
            },
            even=("width", "experts"),
        )  # fmt: skip
    for parts, top, by_softmax, block in (
        (20, 6, False, 512),
        (1, 6, False, 512),
        (8, 8, True, 128),
    ):
        choice = {"PARTS": parts, "TOP": top, "TOP2": 8, "NORMALISE": True, "BLOCK": block}
        yield Launch(
            address=f"{routing}:choose_kernel",
            types=typed("partial bias weights", "*fp32")
            | {"live": "*i1", "chosen": "*i64", "scale": "fp32"}
            | typed("rows experts", "i32"),
            constants={
                "EARLY": True,
                "HAS_LIVE": not by_softmax,
                "BY_SOFTMAX": by_softmax,
                **choice,
            },
            even=("experts",),
        )
    group = "kernels.grouped_matmul.triton_tiles"
    yield Launch(
        address=f"{group}:count_kernel",
        types={"chosen": "*i64", "counts": "*i16"} | typed("pairs experts", "i32"),
        constants={"EARLY": True, "BINS": 512, "CHUNK": 256},
    )
    for is_counted, chunk, step, warps in ((False, 64, 1024, 4), (True, 256, 16, 8)):
        chunks = {"COUNTED": is_counted, "TILE": 16, "BINS": 512, "CHUNK": chunk, "STEP": step}
        yield Launch(
            address=f"{group}:group_kernel",
            types={"chosen": "*i64", "counts": "*i16"}
            | typed("order places tiles tile_expert tile_start tile_end", "*i32")
            | typed("pairs experts chunks", "i32"),
            constants={"EARLY": True, **chunks},
            warps=warps,
        )
    tables = typed("order tiles tile_expert tile_start tile_end", "*i32")
    for tile, columns, block, warps in ((16, 64, 128, 4), (64, 128, 64, 8)):
        sizes = {"TILE": tile, "COLUMNS": columns, "BLOCK": block}
        yield Launch(
            address=f"{grouped}:gate_up_kernel",
            types=typed("x gate_up out", "*bf16")
            | tables
            | typed("per_row width inner blocks", "i32")
            | {"weights": "*fp32", "limit": "fp32"},
            constants=sizes,
            warps=warps,
            stages=3,
            even=("width", "inner", "blocks"),
        )
        yield Launch(
            address=f"{grouped}:down_kernel",
            types=typed("x down out", "*bf16") | tables | typed("width inner blocks", "i32"),
            constants=sizes,
            warps=warps,
            stages=3,
            even=("width", "inner", "blocks"),
        )
    yield Launch(
        address=f"{grouped}:combine_kernel",
        types=typed("parts shared out", "*bf16")
        | {"chosen": "*i64"}
        | typed("width blocks", "i32"),
        constants={"EARLY": True, "TOP": 6, "BLOCK": 1024},
    )


def _caches() -> Iterator[Launch]:
    for packing, width in ((0, 512), (1, 512), (2, 512), (3, 512), (4, 512), (5, 128)):
        yield Launch(
            address="kernels.cache_ops.triton_cuda:insert_kernel",
            types=typed("x", "*bf16")
            | typed("weight cos sin", "*fp32")
            | {"where": "*i64", "cache": "*bf16" if packing == 0 else "*u8", "eps": "fp32"}
            | typed("row_stride turn_width cache_stride page_stride", "i32"),
            constants={
                "EARLY": True,
                "HAS_NORM": True,
                "FORMAT": packing,
                "PAGE": 64,
                "WIDTH": width,
            },
            warps=1,
        )
    for own, chosen in ((0, 0), (1, 2)):
        attention = "kernels.attention.triton_cuda"
        yield Launch(
            address=f"{attention}:attend_kernel",
            types=typed("queries", "*bf16")
            | typed("own chosen", "*u8" if own else "*bf16")
            | typed("index slots positions floors", "*i64")
            | typed("sink out tops", "*fp32")
            | typed("heads head_blocks splits ring length count", "i32")
            | typed("own_page_stride chosen_page_stride", "i32")
            | {"factor": "fp32"},
            constants={
                "OWN": own,
                "CHOSEN": chosen,
                "OWN_PAGE": 0,
                "CHOSEN_PAGE": 0,
                "IS_WHOLE": False,
                "WIDTH": 512,
                "HEADS": 64,
                "KEYS": 32,
                "SPLIT": 5,
            },
            warps=8,
            stages=3,
        )
    for together in (4, 32):
        yield Launch(
            address="kernels.attention.triton_cuda:join_kernel",
            types=typed("tops sink cos sin", "*fp32")
            | {"parts": "*fp16", "out": "*bf16"}
            | typed("heads splits turn_width", "i32"),
            constants={
                "WIDTH": 512, "TOGETHER": together, "PASSES": 1, "HAS_TURN": True, "IS_EARLY": True,
            },
            warps=2,
        )  # fmt: skip


def _hopper_attention() -> Iterator[Launch]:
    for own, chosen, is_whole, keys in (
        (0, 0, True, 64), (0, 2, True, 64), (1, 2, True, 64), (1, 2, False, 32),
        (4, 4, True, 64), (4, 4, True, 32), (4, 4, False, 32),
    ):  # fmt: skip
        yield Launch(
            address="kernels.attention.triton_hopper:attend_kernel",
            types={"queries": "*bf16", "out": "*bf16" if is_whole else "*fp16", "factor": "fp32"}
            | typed("own chosen", "*u8")
            | typed("index slots positions floors", "*i64")
            | typed("cos sin sink tops", "*fp32")
            | typed("works heads splits split_tiles ring length count", "i32")
            | typed("own_page_stride chosen_page_stride", "i32"),
            constants={
                "OWN": own,
                "CHOSEN": chosen,
                "OWN_PAGE": 64 if own == 4 else 0,
                "CHOSEN_PAGE": 64 if own == 4 else 0,
                "IS_WHOLE": is_whole,
                "KEYS": keys,
                "STAGES": 128 // keys,
                "VEC": 4,
                "READER_REGISTERS": 96,
                "ADDER_REGISTERS": 160,
                "IS_EARLY": True,
            },
            even=("own_page_stride", "chosen_page_stride"),
            architectures=(90,),
        )


def _selection() -> Iterator[Launch]:
    indexer, topk = "kernels.indexer.triton_cuda", "kernels.topk.triton_cuda"
    released = {"FORMAT": 3, "PAGE": 0, "HEADS": 32, "PARTS": 4}
    before = {"FORMAT": 5, "PAGE": 64, "HEADS": 64, "PARTS": 2}  # DeepSeek-V4
    for name, each, more, extra in (
        ("score_kernel", "TILES", "spans", released),
        ("score_blocks_kernel", "TILES", "spans shared", {"BLOCK_ROWS": 8, **released}),
        ("score_shared_kernel", "QUERIES", "tiles groups shared", {"TOGETHER": 4, **released}),
        ("score_kernel", "TILES", "spans", before),
        ("score_kernel", "TILES", "spans", {**before, "PAGE": 0}),
        ("score_shared_kernel", "QUERIES", "tiles groups shared", {"TOGETHER": 2, **before}),
    ):
        yield Launch(
            address=f"{indexer}:{name}",
            types=typed("queries weights", "*bf16")
            | {"keys": "*u8", "out": "*fp32"}
            | typed("table counts blocks", "*i64")
            | typed(f"heads context {more} per_block table_stride page_stride", "i32"),
            constants={
                "SHIFT": 7, "WIDTH": 128, "KEYS": 128, each: 4, "STAGES": 1, "IN_ASSEMBLY": True,
                **extra,
            },
            even=("heads", "context", "page_stride"),
        )  # fmt: skip
    yield Launch(
        address=f"{indexer}:block_score_kernel",
        types=typed("scores out", "*fp32") | {"counts": "*i64"} | typed("n blocks parts", "i32"),
        constants={"BLOCK_ROWS": 8, "LANES": 8, "PART": 256},
        even=("n", "blocks"),
    )
    for is_final in (True, False):
        yield Launch(
            address=f"{topk}:best_kernel",
            types=typed("held best", "*u32")
            | typed("index held_at", "*i32")
            | {"scores": "*fp32", "table": "*i64", "out": "*i64" if is_final else "*i32"}
            | typed("n k shared span parts table_stride index_stride", "i32"),
            constants={
                "IS_ORDERED": False, "NAMES": 0, "BLOCK_ROWS": 0, "IS_FINAL": is_final,
                "PER_BLOCK": 128,
                "LANES": 1024, "ROOM": 2048, "BLOCK": 4096,
            },
            warps=8,
            even=("n", "k", "span"),
        )  # fmt: skip


def _hopper_selection() -> Iterator[Launch]:
    pointers = (
        typed("queries weights", "*bf16")
        | {"keys": "*u8", "out": "*fp32"}
        | typed("table counts", "*i64")
    )
    for shift, stages in product(
        (4, 6, 7), (2, 3)
    ):  # pages of less than a tile, and of a whole one
        yield Launch(
            address="kernels.indexer.triton_hopper_own:score_own_kernel",
            types=pointers | typed("heads context spans each table_stride", "i32"),
            constants={"SHIFT": shift, "HEADS": 32, "STAGES": stages},
            even=("heads", "context"),
            architectures=(90,),
        )
    for name, heads in product(("shared:score_many", "split:score_split"), (32, 64)):
        yield Launch(
            address=f"kernels.indexer.triton_hopper_{name}_kernel",
            types=pointers | typed("context tiles groups shared each table_stride", "i32"),
            constants={"SHIFT": 6, "HEADS": heads, "STAGES": 4},
            warps=8 if "many" in name else 4,
            even=("context",),
            architectures=(90,),
        )


def _memory() -> Iterator[Launch]:
    yield Launch(
        address="kernels.quantize.triton_cuda:round_kernel",
        types=typed("x out", "*bf16") | {"size": "i32"},
        constants={"EARLY": True, "FORMAT": 3, "BLOCK": 1024},
    )
    yield Launch(
        address="kernels.engram.triton_cuda:look_up_kernel",
        types=typed("ids multipliers primes offsets", "*i64")
        | typed("table out", "*bf16")
        | typed("heads columns dim", "i32"),
        constants={"EARLY": True, "NGRAM": 4, "COLUMNS": 32, "DIM": 64},
    )
    yield Launch(
        address="kernels.engram.triton_cuda:gated_add_kernel",
        types=typed("streams kv out", "*bf16")
        | {"weight": "*fp32", "width": "i32", "eps": "fp32", "scale": "fp32"},
        constants={"EARLY": True, "N": 4, "BLOCK": 8192},
        warps=8,
    )
