"""Random bits of the counter-based generators Threefry and Philox."""

from __future__ import annotations

from math import prod

import numpy as np

from onnx_tflite_plugin.api import (
    Context,
    Decline,
    Instance,
    Raw,
    Terminate,
    Value,
    ValueLike,
    handler,
    out,
    spend_budget,
)

LOW_WORD = 0xFFFFFFFF
THREEFRY_PARITY = 0x1BD11BDA
ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
PHILOX_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
PHILOX_STEPS = (0x9E3779B9, 0xBB67AE85)


class Bits:
    """Unsigned 32-bit arithmetic in int64.

    Products keep the lowest 64 bits.
    """

    def __init__(self, ctx: Context) -> None:
        self.ops = ctx.ops

    def low_word(self, x: Value) -> Value:
        return self.ops.BitwiseAnd(x, np.int64(LOW_WORD))

    def high_word(self, x: Value) -> Value:
        """Return the upper 32 of 64 bits, unsigned."""
        shifted = self.ops.BitShift(self.ops.Cast(x, to="uint64"), np.uint64(32), direction="RIGHT")
        return self.ops.Cast(shifted, to="int64")

    def add(self, x: ValueLike, y: ValueLike) -> Value:
        return self.low_word(self.ops.Add(x, y))

    def xor(self, x: Value, *terms: ValueLike) -> Value:
        result = x
        for term in terms:
            result = self.ops.BitwiseXor(result, term)
        return result

    def rotate_left(self, x: Value, count: int) -> Value:
        """Return x rotated left.

        The upper half of the product with a power of two contains the bits to rotate in.
        """
        shifted = self.ops.Mul(x, np.int64(1 << count))
        return self.ops.BitwiseOr(self.low_word(shifted), self.high_word(shifted))


def threefry(bits: Bits, key: tuple[Value, Value], counter: list[Value]) -> list[Value]:
    """Emit Threefry2x32 with 20 rounds (Salmon et al., SC 2011; rng_util.cc)."""
    keys = (*key, bits.xor(*key, np.int64(THREEFRY_PARITY)))
    a, b = (bits.add(c, k) for c, k in zip(counter, key, strict=True))
    for block in range(5):
        for count in ROTATIONS[block % 2]:
            a = bits.add(a, b)
            b = bits.xor(bits.rotate_left(b, count), a)
        a = bits.add(a, keys[(block + 1) % 3])
        b = bits.add(b, bits.ops.Add(keys[(block + 2) % 3], np.int64(block + 1)))
    return [a, b]


def philox(bits: Bits, key: tuple[Value, Value], counter: list[Value]) -> list[Value]:
    """Emit Philox4x32 with 10 rounds (Salmon et al., SC 2011; rng_util.cc)."""
    for round_number in range(10):
        first_key, second_key = (
            bits.add(k, np.int64(round_number * step & LOW_WORD)) for k, step in zip(key, PHILOX_STEPS, strict=True)
        )
        p, q = (bits.ops.Mul(counter[2 * k], np.int64(multiplier)) for k, multiplier in enumerate(PHILOX_MULTIPLIERS))
        counter = [
            bits.xor(bits.high_word(q), counter[1], first_key),
            bits.low_word(q),
            bits.xor(bits.high_word(p), counter[3], second_key),
            bits.low_word(p),
        ]
    return counter


def check_static_size(at: Instance) -> Decline | None:
    if not at.op[out(1)].is_static:
        return Decline("the shape of the result is dynamic, but the kernel takes it from the file")
    if at.op[0].dims not in ((2,), (3,)) or (at.op.options.algorithm == "THREEFRY" and at.op[0].dims != (2,)):
        return Decline(
            f"the state has shape {list(at.op[0].shape)}, which the kernel refuses for {at.op.options.algorithm}"
        )
    return None


@handler(
    "STABLEHLO_RNG_BIT_GENERATOR",
    max_version=1,
    layout=Terminate(),
    quantization=Raw(),
    min_opset=18,
    accepts=check_static_size,
)
def rng_bit_generator(ctx: Context, state: Value) -> tuple[Value, Value]:
    """Emit Threefry or Philox on integers.

    The second element of the state counts blocks (rng_bit_generator.cc).
    """
    ops, bits = ctx.ops, Bits(ctx)
    result = ctx.op[out(1)]
    has_64_bits = result.dtype in ("int64", "uint64")
    count = prod(result.shape) * (2 if has_64_bits else 1)
    generator, block_size = (threefry, 2) if ctx.options.algorithm == "THREEFRY" else (philox, 4)
    block_count = -(-count // block_size)

    spend_budget(2 * block_count, 8, "the counters of random bits")  # computed when the model is loaded
    state64 = ops.Cast(state, to="int64")
    key64, counter64 = (ops.Gather(state64, np.asarray([k])) for k in (0, 1))
    counters = ops.Add(counter64, ops.Range(np.int64(0), np.int64(block_count), np.int64(1)))
    counter = [bits.low_word(counters), bits.high_word(counters)]
    key = (bits.low_word(key64), bits.high_word(key64))
    if block_size == 4:  # a state of two elements has no upper half of the counter; the key is used instead
        high_counter = ops.Gather(state64, np.asarray([2])) if ctx.op[0].dims == (3,) else key64
        counter += [
            ops.Expand(word, [block_count]) for word in (bits.low_word(high_counter), bits.high_word(high_counter))
        ]
    words = ops.Concat(*(ops.Unsqueeze(word, [1]) for word in generator(bits, key, counter)), axis=1)
    flat_words = ops.Slice(ops.Reshape(words, [-1]), [0], [count], [0])
    if has_64_bits:
        pairs = ops.Reshape(flat_words, [-1, 2])
        low_word, high_word = (ops.Gather(pairs, np.asarray(k), axis=1) for k in (0, 1))
        flat_words = ops.Add(low_word, ops.Mul(high_word, np.int64(1 << 32)))
    random = ops.Reshape(ops.Cast(flat_words, to=result.dtype), np.asarray(result.shape, np.int64), allowzero=1)
    next_state = ops.Add(state64, np.asarray([0, block_count, 0][: ctx.op[0].shape[0]], np.int64))
    return ops.Cast(next_state, to="uint64"), random
