"""Bugs to plant of the stages that read, bind and plan."""

from __future__ import annotations

from ..planted import Planted, of_tests

MUTATIONS: tuple[Planted, ...] = (
    *of_tests(
        "binding/calls",
        (
            "a call gives way whatever its scales",
            "binding/inlining.py",
            "return (a.dtype, a.dims, a.quantization) == (b.dtype, b.dims, b.quantization) and",
            "return (a.dtype, a.dims) == (b.dtype, b.dims) and",
        ),
        ("a composite that calls itself gives way", "binding/inlining.py", " or index in within:", ":"),
        (
            "a call that remembers gives way",
            "binding/inlining.py",
            " and not any(t.is_variable for t in graph.tensors)",
            "",
        ),
        ("calls expand without bound", "binding/inlining.py", "if self._expanded > self._most:", "if False:"),
        ("copies share a hash", "binding/inlining.py", "hash((self.subgraph, self.index, self.number))", "7"),
    ),
    *of_tests(
        "binding/consistency",
        (
            "the zero point of a fixed range is not looked at",
            "quantization/plan.py",
            "or quantization.zero_point[0] != zero_point:",
            ":",
        ),
    ),
    *of_tests(
        "layout/candidates",
        (
            "an unknown shape is that of a scalar",
            "layout/candidates.py",
            "if tensor is not None and tensor.rank == 0 < rank:",
            "if False:",
        ),
    ),
    *of_tests(
        "binding/odd_files",
        (
            "a result of another rank than is stored keeps the layout of that",
            "shapes/derivation.py",
            "return found or stored",
            "return stored or found",
        ),
    ),
    *of_tests(
        "conversion/shapeless",
        (
            "a shape stored as [] is tried at the ranks beside it",
            "shapes/derivation.py",
            "            ranks = list(candidate_ranks(op, dims))\n",
            "            ranks = [op[~0].rank - 1, op[~0].rank + 1]\n",
        ),
        (
            "a result stored as a scalar beside others is one",
            "binding/consistency.py",
            "return any(map(perhaps_shapeless, model.main.operators))",
            "return False",
        ),
    ),
    *of_tests(
        "conversion/computed_shapes",
        (
            "all results of an operator have the value of the first",
            "shapes/derivation.py",
            "return [np.asarray(result) for result in results]",
            "return [np.asarray(results[0]) for result in results]",
        ),
        (
            "a loop takes any size",
            "shapes/derivation.py",
            "bound.declared.hands_on) and not resized:",
            "bound.declared.hands_on):",
        ),
    ),
    *of_tests(
        "lowering/interface",
        ("outputs without a value are let through", "lowering/interface.py", "    if problems:\n", "    if False:\n"),
    ),
    *of_tests(
        "verify/child",
        ("a fork uses the parent's child", "verify/runtimes/child.py", " or _shared.owner != os.getpid():", ":"),
        (
            "a set that dies ends the search for a tensor",
            "verify/operators/diverging.py",
            "if len(originals) == 1:",
            "if True:",
        ),
    ),
    *of_tests(
        "conversion/report",
        (
            "nodes of inner graphs do not count",
            "report.py",
            "for node in model.graph.all_nodes():",
            "for node in model.graph:",
        ),
        (
            "fused operators count once",
            "pipeline.py",
            "{op for bound in model.operators() for op in bound.members}",
            "{bound.op for bound in model.operators()}",
        ),
        (
            "an axis of size 1 that moves is told as a Transpose",
            "layout/plan.py",
            "if without_unit_axes(order) != without_unit_axes(start):",
            "if order != start:",
        ),
    ),
    *of_tests(
        "conversion/runtime",
        (
            "entries of a file plan their state apart",
            "binding/states.py",
            "in model.source.signatures}) <= 1",
            "in model.source.signatures}) <= 2",
        ),
    ),
    *of_tests(
        "layout/frame",
        (
            "a cut letter is cut where it has one element",
            "layout/frame.py",
            "if here == 1 or size is None:",
            "if size is None:",
        ),
        (
            "a cut counts from the start of its axis",
            "layout/frame.py",
            "Atom(axis, stride * axes.inner(axis, letter), size)",
            "Atom(axis, stride, size)",
        ),
        ("a size that does not divide is divided", "layout/frame.py", "if rest == 0 or size % rest:", "if rest == 0:"),
        ("letters of several sizes may be cut", "layout/frame.py", "- {1}) <= 1", "- {1}) <= 2"),
        (
            "a unit need have size 1 in one slot only",
            "layout/frame.py",
            "if all(slot.sizes.get(a, 1) == 1",
            "if any(slot.sizes.get(a, 1) == 1",
        ),
        (
            "a unit that is left out comes back",
            "layout/frame.py",
            "            if letter in letters & self.units:\n                continue\n",
            "",
        ),
    ),
    *of_tests(
        "layout/order",
        (
            "an order of cut axes is a perm",
            "layout/order.py",
            "return axes(order) if len(order) == len(axes(order)) else None",
            "return axes(order)",
        ),
        (
            "unknown sizes count as 1 whatever is asked",
            "layout/order.py",
            "unknown if d is None else d",
            "1 if d is None else d",
        ),
        (
            "elements that leave a gap continue each other",
            "layout/order.py",
            "last.stride == atom.stride * atom.size",
            "last.stride == atom.stride",
        ),
        (
            "a cut axis is not reshaped before it moves",
            "layout/order.py",
            "None if split == before else split, perm",
            "None, perm",
        ),
        (
            "pieces of an axis have the size of all below",
            "layout/order.py",
            "sizes = [high // low for low, high in",
            "sizes = [high for low, high in",
        ),
    ),
    *of_tests(
        "layout/plan",
        (
            "orders are offered without bound",
            "layout/spread.py",
            "if order in orders or len(orders) >= MOST_CANDIDATES or",
            "if order in orders or",
        ),
        (
            "a constant carries an order",
            "layout/spread.py",
            "if tensor.constant or (tensor, order) in self.told",
            "if (tensor, order) in self.told",
        ),
    ),
    *of_tests(
        "layout/prices",
        (
            "the file's order is left out where another is dear",
            "layout/spread.py",
            "not candidates[bound] or any(price(freedoms[bound], order) for order in candidates[bound])",
            "not candidates[bound]",
        ),
        (
            "what costs along the last axis costs along the others",
            "layout/plan.py",
            "prices(along, set(innermost) <= letters,",
            "prices(along, not set(innermost) <= letters,",
        ),
        (
            "operators that gain nothing are told",
            "layout/plan.py",
            "strict=False) if gain > 0)",
            "strict=False) if gain >= 0)",
        ),
    ),
    *of_tests(
        "layout/sequences",
        (
            "an order that shows a unit in some slots comes first",
            "layout/spread.py",
            "(frame.uneven(order), order != frame.source)",
            "(order != frame.source,)",
        ),
        (
            "operators of any order show every axis of size 1",
            "layout/candidates.py",
            "units = isinstance(layout, Transparent) and bound.declared.effects is None",
            "units = False",
        ),
        (
            "a sequence is better an image, and a single position a sequence",
            "layout/candidates.py",
            "if len(flat) < len(layout.squeezable) else",
            "if len(flat) >= len(layout.squeezable) else",
        ),
    ),
    *of_tests(
        "lowering/counted_loops",
        (
            "an order does not cross a border",
            "layout/spread.py",
            "return [(tensor, permuted(tensor.dims, perm)) for tensor in border.tensors]",
            "return []",
        ),
        ("sequences keep their order in loops", "layout/borders.py", "tensors[0].rank > 2", "tensors[0].rank > 3"),
        (
            "a loop counts as often as what is around it",
            "layout/borders.py",
            "(REPEATED if passed is not None and passed.loops else 1)",
            "1",
        ),
        (
            "what a loop repeats counts once",
            "layout/plan.py",
            "yield solver.Wire(weight * self.times,",
            "yield solver.Wire(weight,",
        ),
    ),
    *of_tests(
        "lowering/states",
        ("a state is seen in one shape", "layout/states.py", "for b in group}) == 1", "for b in group}) >= 1"),
    ),
    *of_tests(
        "quantization/rounding",
        ("a bound at the dtype's own end clips", "quantization/activation.py", "top < most", "top <= most"),
        ("a bound is told in a scale of 0", "quantization/activation.py", "    if not scale:", "    if False:"),
        (
            "a bound halfway between two integers goes to the even one",
            "quantization/activation.py",
            "math.copysign(math.floor(abs(value) + 0.5), value)",
            "math.copysign(round(abs(value)), value)",
        ),
    ),
    *of_tests(
        "quantization/storage_plan",
        (
            "states are kept in another dtype",
            "quantization/plan.py",
            "        kept.update(t for t in (*bound.op.inputs, *bound.op.outputs) if t is not None and t.is_variable)\n",
            "",
        ),
        (
            "callers take and give another dtype",
            "quantization/plan.py",
            "        if bound.declared.subgraphs or (bound.declared.effects is not None and not safe):\n"
            "            kept.update(_quantized(bound))\n",
            "",
        ),
        (
            "subgraphs take and give another dtype",
            "quantization/plan.py",
            "for graph in model.graphs if graph is not model.main for t in",
            "for graph in () for t in",
        ),
        (
            "weights of 8 bit products are floats",
            "quantization/plan.py",
            "if not dtypes <= self.target.multiplies:\n            return Weights.DEQUANTIZED",
            "if not dtypes <= self.target.multiplies:\n            return Weights.FOLDED",
        ),
        (
            "operators with weights stay in the file's dtype",
            "quantization/plan.py",
            "if all((t in edges or t.constant) and t not in weights for t in tensors)",
            "if all(t in edges or t.constant for t in tensors)",
        ),
        (
            "slots that need not agree are asked whether they do",
            "quantization/plan.py",
            "tensors = _alike(bound) if declared.among is None else _quantized(bound, declared.among)",
            "tensors = _alike(bound)",
        ),
        (
            "bare integers are shifted",
            "quantization/plan.py",
            "return Arithmetic.STORED if declared.shift_safe else Arithmetic.FILE",
            "return Arithmetic.STORED",
        ),
        (
            "a state of several entries is stored as each likes",
            "quantization/plan.py",
            "    if not complete:\n        return {tensor for group in together for tensor in group}\n",
            "",
        ),
    ),
    *of_tests(
        "source/data",
        (
            "a blocked axis of sparse weights reaches into the next row",
            "source/sparsity.py",
            "limit[axis] //= sizes[rank + block]",
            "limit[axis] //= 1",
        ),
        (
            "small constants unfold 256 times at most",
            "source/buffers.py",
            "max(DECODED_BYTES, DECODED_RATIO * stored)",
            "min(DECODED_BYTES, DECODED_RATIO * stored)",
        ),
    ),
    *of_tests(
        "source/invalid",
        (
            "an input may be computed",
            "source/subgraphs.py",
            "if tensors[number].constant or number in inputs:",
            "if tensors[number].constant:",
        ),
    ),
    *of_tests(
        "source/source",
        (
            "the operator's number is the newer field",
            "source/subgraphs.py",
            'number = max(table.number("deprecated_builtin_code"), table.number("builtin_code"))',
            'number = table.number("builtin_code")',
        ),
    ),
)
