"""What the assembly that unpacks fp4 does to bits, instruction by instruction."""

import re

import pytest


def executed(assembly, word):
    """The bits that the assembly multiplies, by the number of the output."""
    held = {"$4": word}
    found = {}
    for name, to, a, b in re.findall(r"([a-z]+)\.[\w.]+ ([\w$]+), ([\w$]+), ([\w$]+);", assembly):
        if to.startswith("$"):
            found[int(to[1:])] = held[a]
            continue
        left, right = held[a], int(b, 0)
        held[to] = {"and": left & right, "mul": left * right, "shr": left >> right}[name]
        held[to] &= 0xFFFFFFFF
    return found


@pytest.mark.parametrize("place", range(4))
def test_products_put_sign_and_magnitude_where_bfloat16_has_them(place):
    pytest.importorskip("triton", reason="triton is not installed")
    from kernels.quantize.triton_operands import FP4_BY_PRODUCTS

    for low in range(16):
        for high in range(16):
            others = 0xFFFFFFFF ^ (0x000F000F << 4 * place)
            word = others | (low << 4 * place) | (high << (16 + 4 * place))
            pair = [(code >> 3) << 15 | (code & 7) << 6 for code in (low, high)]
            assert executed(FP4_BY_PRODUCTS.value, word)[place] == pair[0] | pair[1] << 16
