"""Mutations of a file's bytes, regardless of their meaning."""

from __future__ import annotations

import random
import struct

WORDS = (0, 1, 2, 4, 8, 255, 256, 65535, 65536, 1 << 24, 2**31 - 1, 2**31, 2**32 - 1, 2**32 - 4)


def mutate(data: bytes, seed: int) -> bytes:
    """Return the file truncated, or with changed or repeated bytes."""
    draw, changed = random.Random(seed), bytearray(data)
    kind = draw.randrange(12)
    if kind == 0:
        return bytes(changed[: draw.randrange(len(changed))])
    if kind == 1:
        start = draw.randrange(len(changed))
        part = changed[start : start + draw.randrange(1, 64)]
        at = draw.randrange(len(changed))
        return bytes(changed[:at] + part + changed[at:])
    for _ in range(draw.choice((1, 1, 1, 2, 3, 6))):
        at = draw.randrange(8, len(changed) - 4)
        if draw.random() < 0.4:
            changed[at] ^= 1 << draw.randrange(8)
        elif draw.random() < 0.5:
            changed[at] = draw.randrange(256)
        else:
            at -= at % 4
            (word,) = struct.unpack_from("<I", changed, at)
            new_word = draw.choice((*WORDS, (word + 1) % 2**32, (word - 1) % 2**32, word + 4 & 0xFFFFFFFF))
            struct.pack_into("<I", changed, at, new_word)
    return bytes(changed)
