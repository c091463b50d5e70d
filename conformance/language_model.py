"""A small language model with a key-value cache, as exported from PyTorch.

It has a signature for a prompt and one for a single token.

There are two variants. ``rows``: a cache has the axes batch, slot, group, element, and the mask is read from a constant
table. ``columns``: groups come before slots, and the cache of values is transposed. The mask is an input, and queries
that share keys are rows of one product.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from conformance.builder import ModelBuilder, TensorRef
from conformance.models import Net, Spec, constant, random_array, tensor
from onnx_tflite_plugin.source.model import Array

FORBIDDEN = -1e4


@dataclass(frozen=True)
class Sizes:
    """Sizes and variant of a model.

    ``cache_layout``: "rows" or "columns". ``length``: number of tokens of a prompt. ``slots``: number of tokens that a
    cache holds. ``window``: number of tokens that a token attends to, itself included; 0 for all earlier tokens.
    ``groups``: number of groups of heads with shared keys and values. ``depth``: size of a head. ``simplify_decode``:
    True to omit operators that change nothing from the signature for one token, as some converters do.
    """

    cache_layout: str = "rows"
    layers: int = 2
    vocabulary: int = 31
    width: int = 24
    heads: int = 6
    groups: int = 2
    depth: int = 8
    slots: int = 19
    length: int = 5
    window: int = 0
    simplify_decode: bool = False

    @property
    def cache_shapes(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return the shapes of the key and value caches."""
        if self.cache_layout == "rows":
            return ((1, self.slots, self.groups, self.depth),) * 2
        return (1, self.groups, self.slots, self.depth), (1, self.groups, self.depth, self.slots)


def language_model(sizes: Sizes = Sizes()) -> bytes:
    """Return a model with the signatures ``prefill_N`` and ``decode``."""
    model = ModelBuilder("a small language model with random weights")
    for key, count in ((f"prefill_{sizes.length}", sizes.length), ("decode", 1)):
        net = Net()
        net.model, net.graph = model, model.main if count > 1 else model.subgraph(key)
        _Signature(net, sizes, count, key).build()
    return model.build()


def weights(name: str, *shape: int) -> Spec:
    """Return random weights, scaled so that activations keep their magnitude."""
    return constant(random_array(*shape, seed=name) / np.float32(np.sqrt(shape[-1])))


class _Signature:
    """Builds one signature for ``count`` tokens, layer by layer."""

    def __init__(self, net: Net, sizes: Sizes, count: int, key: str) -> None:
        self.net, self.sizes, self.count, self.key = net, sizes, count, key
        self.inputs: dict[str, TensorRef] = {}
        self.results: dict[str, TensorRef] = {}

    def build(self) -> None:
        sizes, count = self.sizes, self.count
        tokens = self._input("tokens", tensor(1, count, dtype="int32"))
        positions = self._input("input_pos", tensor(count, dtype="int32"))
        embedding = weights("embedding", sizes.vocabulary, sizes.width)
        flat = self.net.call("RESHAPE", [tokens, constant([count])], tensor(count, dtype="int32"))
        x = self.net.call("EMBEDDING_LOOKUP", [flat, embedding], tensor(count, sizes.width))
        position_embeddings = self.net.call(
            "GATHER", [weights("places", sizes.slots, sizes.width), positions], tensor(count, sizes.width)
        )
        x = self.net.call("ADD", [x, position_embeddings], tensor(count, sizes.width))
        x = self.net.call("RESHAPE", [x, constant([1, count, sizes.width])], tensor(1, count, sizes.width))
        attention = Attention(self.net, sizes, count, positions, self._mask(positions))
        for k in range(sizes.layers):
            x = self._layer(attention, x, k, last=k == sizes.layers - 1)
        if count == 1:
            self.results["logits"] = self._dense(x, embedding, sizes.vocabulary)
        self.net.output(*self.results.values())
        inputs = {name: int(ref) for name, ref in self.inputs.items()}
        outputs = {name: int(ref) for name, ref in self.results.items()}
        self.net.model.signature(self.key, inputs, outputs, self.net.graph.index)

    def _input(self, name: str, spec: Spec) -> TensorRef:
        self.inputs[name] = self.net.graph.input(f"{self.key}_{name}", spec.shape, spec.dtype)
        return self.inputs[name]

    def _mask(self, positions: TensorRef) -> TensorRef:
        if self.sizes.cache_layout == "rows":
            return table_mask(self.net, self.sizes, self.count, positions)
        return self._input("mask", tensor(1, 1, self.count, self.sizes.slots))

    def _layer(self, attention: Attention, x: TensorRef, k: int, *, last: bool) -> TensorRef:
        sizes = self.sizes
        caches = [
            self._input(f"kv_cache_{kind}_{k}", tensor(*shape))
            for kind, shape in zip("kv", sizes.cache_shapes, strict=True)
        ]
        q, new_keys, new_values = (
            self._dense(x, weights(f"{name}{k}", heads * sizes.depth, sizes.width), heads * sizes.depth)
            for name, heads in (("q", sizes.heads), ("k", sizes.groups), ("v", sizes.groups))
        )
        keys = attention.write(caches[0], new_keys, cache_index=0)
        values = attention.write(caches[1], new_values, cache_index=1)
        self.results |= {f"kv_cache_k_{k}": keys, f"kv_cache_v_{k}": values}
        if last and self.count > 1:
            return x
        y = attention.attend(q, keys, values)
        y = self._dense(y, weights(f"o{k}", sizes.width, sizes.heads * sizes.depth), sizes.width)
        return self.net.call("ADD", [x, y], tensor(1, self.count, sizes.width))

    def _dense(self, x: TensorRef, matrix: Spec, out: int) -> TensorRef:
        return self.net.call("FULLY_CONNECTED", [x, matrix, None], tensor(1, self.count, out), keep_num_dims=True)


def table_mask(net: Net, sizes: Sizes, count: int, positions: TensorRef, *, allowed: Array | None = None) -> TensorRef:
    """Return the attention mask for ``positions``, gathered from a constant table.

    ``allowed``: boolean matrix [position, slot], True if the position attends to the slot; causal by default.
    """
    if allowed is None:
        query_positions, slots = np.indices((sizes.slots, sizes.slots))
        allowed = (slots <= query_positions) & ((slots > query_positions - sizes.window) if sizes.window else True)
    table = constant(np.where(allowed, 0, FORBIDDEN).astype(np.float32).reshape(sizes.slots, 1, 1, sizes.slots))
    rows = net.call("RESHAPE", [positions, constant([count, 1])], tensor(count, 1, dtype="int32"))
    gathered = net.call("GATHER_ND", [table, rows], tensor(count, 1, 1, sizes.slots))
    return net.call("RESHAPE", [gathered, constant([1, 1, count, sizes.slots])], tensor(1, 1, count, sizes.slots))


class Attention:
    """Builds writes into caches, and attention over these caches, for one signature."""

    def __init__(self, net: Net, sizes: Sizes, count: int, positions: TensorRef, mask: TensorRef) -> None:
        self.net, self.sizes, self.count, self.mask = net, sizes, count, mask
        first_position = positions
        if count > 1 or not sizes.simplify_decode:
            first_position = net.call("SLICE", [positions, constant([0]), constant([1])], tensor(1, dtype="int32"))
        self.first_position = net.call(
            "RESHAPE", [first_position, constant(np.zeros(0, np.int32))], tensor(dtype="int32")
        )
        self._starts: dict[int, TensorRef] = {}

    def write(self, cache: TensorRef, new: TensorRef, cache_index: int) -> TensorRef:
        """Write new keys or values into a cache; return the new cache.

        ``new`` has the shape [1, count, groups * depth]. ``cache_index``: 0 for keys, 1 for values.
        """
        sizes, count = self.sizes, self.count
        shape = tensor(1, count, sizes.groups, sizes.depth)
        update = self.net.call("RESHAPE", [new, constant(list(shape.shape))], shape)
        axis = 1
        if sizes.cache_layout == "columns":
            axis, perm = ((2, [0, 2, 1, 3]), (3, [0, 2, 3, 1]))[cache_index]
            update = self.transpose(update, perm, tuple(shape.shape[k] or 0 for k in perm))
        result = tensor(*sizes.cache_shapes[cache_index])
        return self.net.call("DYNAMIC_UPDATE_SLICE", [cache, update, self.start(axis)], result)

    def transpose(self, x: TensorRef, perm: list[int], shape: tuple[int, ...]) -> TensorRef:
        """Transpose ``x`` by ``perm``; the result has the shape ``shape``.

        If there is only one token and ``simplify_decode`` is True, add a RESHAPE in place of the TRANSPOSE.
        """
        if self.count == 1 and self.sizes.simplify_decode:
            return self.net.call("RESHAPE", [x, constant(list(shape))], tensor(*shape))
        return self.net.call("TRANSPOSE", [x, constant(perm)], tensor(*shape))

    def start(self, axis: int) -> TensorRef:
        """Return the start indices of a write: the first position along ``axis``, else 0."""
        if axis not in self._starts:
            parts = [self.first_position if k == axis else constant(np.zeros((), np.int32)) for k in range(4)]
            self._starts[axis] = self.net.call("PACK", parts, tensor(4, dtype="int32"), values_count=4)
        return self._starts[axis]

    def attend(self, q: TensorRef, keys: TensorRef, values: TensorRef) -> TensorRef:
        """Return the attention outputs of the queries ``q``.

        Queries and outputs have the shape [1, count, heads * depth].
        """
        sizes, count, call = self.sizes, self.count, self.net.call
        shape = (1, count, sizes.heads, sizes.depth)
        q = call("RESHAPE", [q, constant(list(shape))], tensor(*shape))
        q = call("MUL", [q, constant(np.float32(sizes.depth**-0.5))], tensor(*shape))
        q = self.transpose(q, [0, 2, 1, 3], (1, sizes.heads, count, sizes.depth))
        y = (self._attend_repeated if sizes.cache_layout == "rows" else self._attend_shared)(q, keys, values)
        y = self.transpose(y, [0, 2, 1, 3], shape)
        flat = (1, count, sizes.heads * sizes.depth)
        return call("RESHAPE", [y, constant(list(flat))], tensor(*flat))

    def _attend_repeated(self, q: TensorRef, keys: TensorRef, values: TensorRef) -> TensorRef:
        """Return attention outputs; keys and values are repeated for each head of a group."""
        sizes, count, call = self.sizes, self.count, self.net.call
        k, v = (self._repeat_heads(cache) for cache in (keys, values))
        scores = tensor(1, sizes.heads, count, sizes.slots)
        products = call("BATCH_MATMUL", [q, k], scores, adj_y=True)
        masked = call("ADD", [products, self.mask], scores)
        probabilities = call("SOFTMAX", [masked], scores, beta=1.0)
        return call("BATCH_MATMUL", [probabilities, v], tensor(1, sizes.heads, count, sizes.depth))

    def _repeat_heads(self, cache: TensorRef) -> TensorRef:
        sizes, call = self.sizes, self.net.call
        groups, slots, depth, heads_per_group = sizes.groups, sizes.slots, sizes.depth, sizes.heads // sizes.groups
        transposed = call("TRANSPOSE", [cache, constant([0, 2, 1, 3])], tensor(1, groups, slots, depth))
        grouped = call(
            "RESHAPE", [transposed, constant([1, groups, 1, slots, depth])], tensor(1, groups, 1, slots, depth)
        )
        repeated_shape = [1, groups, heads_per_group, slots, depth]
        repeated = call("BROADCAST_TO", [grouped, constant(repeated_shape)], tensor(*repeated_shape))
        return call(
            "RESHAPE", [repeated, constant([1, sizes.heads, slots, depth])], tensor(1, sizes.heads, slots, depth)
        )

    def _attend_shared(self, q: TensorRef, keys: TensorRef, values: TensorRef) -> TensorRef:
        """Return attention outputs, with the queries of a group as rows of one product."""
        sizes, count, call = self.sizes, self.count, self.net.call
        groups, heads_per_group = sizes.groups, sizes.heads // sizes.groups
        rows = heads_per_group * count
        q = call("RESHAPE", [q, constant([1, groups, rows, sizes.depth])], tensor(1, groups, rows, sizes.depth))
        scores = tensor(1, groups, rows, sizes.slots)
        products = call("BATCH_MATMUL", [q, keys], scores, adj_y=True)
        mask = call("CONCATENATION", [self.mask] * heads_per_group, tensor(1, 1, rows, sizes.slots), axis=2)
        masked = call("ADD", [products, mask], scores)
        probabilities = call("SOFTMAX", [masked], scores, beta=1.0)
        y = call("BATCH_MATMUL", [probabilities, values], tensor(1, groups, rows, sizes.depth), adj_y=True)
        shape = (1, sizes.heads, count, sizes.depth)
        return call("RESHAPE", [y, constant(list(shape))], tensor(*shape))


def causal_mask(sizes: Sizes, start: int, count: int) -> Array:
    """Return the mask input for ``count`` tokens, the first of them at ``start``."""
    allowed = np.arange(sizes.slots) <= start + np.arange(count)[:, None]
    return np.where(allowed, 0, FORBIDDEN).astype(np.float32).reshape(1, 1, count, sizes.slots)


def feeds(sizes: Sizes, tokens: Mapping[str, Array], start: int) -> dict[str, Array]:
    """Return the inputs of a signature; for "columns", they include the mask."""
    count = tokens["tokens"].shape[1]
    mask = {"mask": causal_mask(sizes, start, count)} if sizes.cache_layout == "columns" else {}
    return {**tokens, "input_pos": np.arange(start, start + count, dtype=np.int32), **mask}
