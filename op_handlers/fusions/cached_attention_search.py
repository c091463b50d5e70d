"""Search for attention over a key-value cache among the operators of a model.

Such an attention multiplies queries by cached keys, adds a mask, and multiplies the Softmax by cached values. Operators
in between that reshape, transpose or repeat matrices are treated as views, so heads may be grouped in any arrangement.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import permutations
from math import prod
from typing import Any, NamedTuple

import numpy as np

from onnx_tflite_plugin.api import Array, Operator, Region, Tensor, out
from op_handlers.kernels.masks import attention_window, position_input
from op_handlers.kernels.views import Producers, View, has_distinguishable_sizes, positions, producers_of, view_of


class Cache(NamedTuple):
    """A cache and the operator that updates it.

    ``letters``: the axes of the cache (b: batch, g: group, s: slot, h: element). ``position``: the first updated slot.
    """

    write: Operator
    letters: str
    position: Tensor

    @property
    def tensor(self) -> Tensor:
        return self.write[0]

    @property
    def update_letters(self) -> str:
        return self.letters.replace("s", "t")

    def size(self, letter: str) -> int:
        """Return the size of an axis; for ``t``, the number of updated slots."""
        tensor, letters = (self.write[1], self.update_letters) if letter == "t" else (self.write[0], self.letters)
        return tensor.shape[letters.index(letter)]

    def elements(self) -> Array:
        """Return the positions of the cache's elements as [group, slot, element]."""
        element_positions = positions(self.tensor).transpose([self.letters.index(letter) for letter in "bgsh"])
        return element_positions.reshape(element_positions.shape[1:])


class Queries(NamedTuple):
    """The queries of an attention.

    ``letters``: the axes (b: batch, n: head, t: token, h: element of a head, m: all elements of all heads).
    """

    tensor: Tensor
    letters: str


class CacheProduct(NamedTuple):
    """A BATCH_MATMUL whose right operand is a view of a cache.

    ``rows``, ``matrices``: the operands [batches, rows, depth] and [batches, depth, columns], as positions of elements
    in the sources of the views ``left`` and ``right``.
    """

    op: Operator
    left: View
    rows: Array
    right: View
    matrices: Array
    cache: Cache


class RowIndices(NamedTuple):
    """The head and the token of each row of scores, as arrays [batches, rows]."""

    heads: Array
    tokens: Array


def cached_attentions(operators: Sequence[Operator]) -> Iterator[Region]:
    """Yield each attention over a cache with a causal mask, perhaps with a window."""
    producers, windows = producers_of(operators), dict[tuple[Tensor, Tensor], int | None]()
    for op in operators:
        if op.code == "SOFTMAX" and op.options.beta == 1.0:
            region = _Finder(operators, producers, op, windows).find()
            if region is not None:
                yield region


class _Finder:
    """Finds the attention around one SOFTMAX.

    ``windows``: (mask, positions) -> attention window; all layers share this cache.
    """

    def __init__(
        self,
        operators: Sequence[Operator],
        producers: Producers,
        softmax: Operator,
        windows: dict[tuple[Tensor, Tensor], int | None],
    ) -> None:
        self.operators, self.producers, self.softmax, self.windows = operators, producers, softmax, windows

    def find(self) -> Region | None:
        """Return the region, or None if the SOFTMAX is not part of attention over a cache."""
        for scores, mask in self._masked_scores():
            op = self.producers.get(scores.source)
            key_product = None if op is None or not scores.is_unscaled else self._match_product(op)
            if key_product is None:
                continue
            value_product = next(filter(None, map(self._match_value_product, self.operators)), None)
            if value_product is None:
                continue
            region = self._match_attention(key_product, scores, mask, value_product)
            if region is not None:
                return region
        return None

    def _masked_scores(self) -> Iterator[tuple[View, Tensor]]:
        """Yield scores and mask, for both operand orders of the ADD before the SOFTMAX."""
        add = self.producers.get(self.softmax[0])
        if add is None or add.code != "ADD" or add.options.fused_activation_function != "NONE":
            return
        for slot in (0, 1):
            yield view_of(add[slot], self.producers), add[1 - slot]

    def _match_product(self, op: Operator) -> CacheProduct | None:
        """Return a product with a cache, or None for other operators."""
        if op.code != "BATCH_MATMUL" or not has_distinguishable_sizes(op[out(0)]):
            return None
        left, right = (view_of(op[slot], self.producers) for slot in (0, 1))
        cache = self._match_cache(right)
        if cache is None:
            return None
        rows, matrices = _matrices(left.positions, op.options.adj_x), _matrices(right.positions, op.options.adj_y)
        return CacheProduct(op, left, rows, right, matrices, cache)

    def _match_cache(self, view: View) -> Cache | None:
        """Return the cache that a view reads, else None.

        The axis of slots is the only axis along which update and cache differ in size.
        """
        write = self.producers.get(view.source)
        if write is None or write.code != "DYNAMIC_UPDATE_SLICE" or write[0].dims[:1] != (1,) or write[0].rank != 4:
            return None
        cache_sizes, update_sizes = write[0].shape, write[1].shape
        written_axes = [axis for axis in range(1, 4) if cache_sizes[axis] != update_sizes[axis]]
        start = self.producers.get(write[2])
        if len(written_axes) != 1 or start is None or start.code != "PACK" or len(start.inputs) != 4:
            return None
        position = start[written_axes[0]]
        zeros = [t for axis, t in enumerate(start.inputs) if axis != written_axes[0]]
        if position.is_constant or not all(t is not None and t.is_constant and not t.array.any() for t in zeros):
            return None
        other_axes = [axis for axis in range(1, 4) if axis != written_axes[0]]
        letters = dict(zip((0, written_axes[0], *other_axes), "bsgh", strict=True))
        return Cache(write, "".join(letters[axis] for axis in range(4)), position)

    def _match_value_product(self, op: Operator) -> CacheProduct | None:
        """Return a product of the SOFTMAX and cached values, or None for other operators."""
        if op.code != "BATCH_MATMUL" or view_of(op[0], self.producers).source is not self.softmax[out(0)]:
            return None
        product = self._match_product(op)
        is_unscaled = product is not None and product.left.is_unscaled and product.right.is_unscaled
        return product if is_unscaled else None

    def _match_attention(
        self, key_product: CacheProduct, scores: View, mask: Tensor, value_product: CacheProduct
    ) -> Region | None:
        """Return the region if all elements are arranged as in grouped attention."""
        query_view, keys, values = key_product.left, key_product.cache, value_product.cache
        queries = _queries(query_view.source, key_product.rows, keys.size("t"), keys.size("g"))
        if queries is None or keys.position is not values.position:
            return None
        (attention_queries, query_rows), groups = queries, keys.size("g")
        heads = prod(attention_queries.tensor.shape) // keys.size("t") // keys.size("h")
        heads_per_group, slots = heads // groups, keys.size("s")
        if heads % groups or not _reads_groups(
            keys, key_product.matrices, query_rows.heads // heads_per_group, transposed=True
        ):
            return None
        # Positions of scores are flat indices of [head, token, slot]. Each row must have all slots in order.
        row_starts = (query_rows.heads * keys.size("t") + query_rows.tokens)[..., None] * slots + np.arange(slots)
        score_positions = row_starts.reshape(-1)[np.broadcast_to(scores.positions, self.softmax[0].shape)]
        mask_view = view_of(mask, self.producers)
        mask_positions = score_positions // slots % keys.size("t") * slots + score_positions % slots
        if (score_positions % slots != np.arange(slots)).any() or not mask_view.is_unscaled:
            return None
        # All heads must share the mask [token, slot].
        if (np.broadcast_to(mask_view.positions, score_positions.shape) != mask_positions).any():
            return None
        # The product with the values must read complete rows.
        probability_positions = score_positions.reshape(-1)[value_product.rows]
        row_positions = probability_positions[..., 0] // slots
        if (probability_positions != row_positions[..., None] * slots + np.arange(slots)).any():
            return None
        value_groups = row_positions // keys.size("t") // heads_per_group
        if not _reads_groups(values, value_product.matrices, value_groups, transposed=False):
            return None
        window = self._window(mask_view.source, keys)
        result = self._attention_result(value_product.op, row_positions, heads, keys)
        if window is None or result is None:
            return None
        options: dict[str, Any] = {
            "letters": (attention_queries.letters, keys.letters, values.letters),
            "heads": heads,
            "groups": groups,
            "tokens": keys.write[1].dims[keys.update_letters.index("t")],
            "depth": keys.size("h"),
            "scale": query_view.scale * key_product.right.scale,
            "window": window,
        }
        caches = [keys.write[1], values.write[1], keys.tensor, values.tensor]
        inputs = [query_view.source, *caches, keys.position, mask_view.source]
        if options["tokens"] is None:
            token_positions = position_input(keys.position, self.producers)
            if token_positions is None:
                return None
            inputs.append(token_positions)
        return Region(inputs, [result, keys.write[out(0)], values.write[out(0)]], options)

    def _window(self, mask: Tensor, keys: Cache) -> int | None:
        """Return the window of a mask (see ``attention_window``), cached for all layers."""
        key = mask, keys.position
        if key not in self.windows:
            self.windows[key] = attention_window(mask, keys.position, self.producers, keys.size("t"), keys.size("s"))
        return self.windows[key]

    def _attention_result(self, product: Operator, rows: Array, heads: int, keys: Cache) -> Tensor | None:
        """Return the last view of the product in which a token's heads are adjacent."""
        depth, tokens = keys.size("h"), keys.size("t")
        row_order = rows % tokens * heads + rows // tokens  # positions in [token, head]
        element_order = (row_order[..., None] * depth + np.arange(depth)).reshape(-1)
        result: Tensor | None = None
        tensor: Tensor | None = product[out(0)]
        while tensor is not None:
            view = view_of(tensor, self.producers)
            if view.source is not product[out(0)] or not view.is_unscaled:
                break
            if (element_order[view.positions.reshape(-1)] == np.arange(element_order.size)).all():
                result = tensor
            users = [op for op in self.operators if tensor in op.inputs]
            tensor = users[0].outputs[0] if len(users) == 1 else None
        return result


def _matrices(element_positions: Array, transposed: bool) -> Array:
    """Return positions of elements as matrices, [batches, rows, columns]."""
    element_positions = element_positions.reshape(-1, *element_positions.shape[-2:])
    return element_positions.swapaxes(1, 2) if transposed else element_positions


def _queries(tensor: Tensor, rows: Array, tokens: int, groups: int) -> tuple[Queries, RowIndices] | None:
    """Return the queries, and head and token of each row of the product, else None."""
    if not has_distinguishable_sizes(tensor) or tensor.dims[:1] != (1,) or tensor.dtype != "float32":
        return None
    for letters, heads_first in _axis_candidates(tensor, tokens, rows.shape[-1]):
        row_elements = heads_first.reshape(-1, rows.shape[-1])
        row_of_element = np.zeros(row_elements.size, np.int32)
        row_of_element[row_elements[:, 0]] = np.arange(len(row_elements))
        row_numbers = row_of_element[rows[..., 0]]
        if row_elements.shape[0] // tokens % groups == 0 and (row_elements[row_numbers] == rows).all():
            return Queries(tensor, letters), RowIndices(row_numbers // tokens, row_numbers % tokens)
    return None


def _axis_candidates(tensor: Tensor, tokens: int, depth: int) -> Iterator[tuple[str, Array]]:
    """Yield axis letters that queries may have, and positions [head, token, element]."""
    if tensor.rank == 3 and tensor.shape[1] == tokens and not tensor.shape[2] % depth:
        yield "btm", positions(tensor).reshape(tokens, -1, depth).swapaxes(0, 1)
    for axes in permutations("nth") if tensor.rank == 4 else ():
        letters = "b" + "".join(axes)
        if tensor.shape[letters.index("t")] == tokens and tensor.shape[letters.index("h")] == depth:
            yield letters, positions(tensor).transpose([letters.index(letter) for letter in "bnth"])[0]


def _reads_groups(cache: Cache, matrices: Array, groups: Array, *, transposed: bool) -> bool:
    """True if each matrix is one cached group, to which all rows of the batch belong."""
    group_of_batch = groups[:, 0]
    if (
        (groups != group_of_batch[:, None]).any()
        or len(matrices) != len(groups)
        or group_of_batch.max(initial=0) >= cache.size("g")
    ):
        return False
    group_elements = cache.elements()[group_of_batch]
    matrix_elements = matrices.swapaxes(1, 2) if transposed else matrices
    return bool(group_elements.shape == matrix_elements.shape and (group_elements == matrix_elements).all())
