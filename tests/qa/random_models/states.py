"""Random models with states or several subgraphs."""

from __future__ import annotations

from typing import Any

import numpy as np

from conformance.case import Case
from conformance.cases.control.branches import arithmetic_branch, if_case, negate, pass_through, switch_case
from conformance.cases.control.composites import add_operands, composite_case
from conformance.cases.control.loops import PLANS, double, loop_case
from conformance.cases.state.tables import build_lookup, table_size
from conformance.cases.state.variables import VariableNet, with_variables
from conformance.models import Spec, net
from tests.qa.random_models.draw import Draw, case_generator

SUMMABLE = ("float32", "int8", "uint8", "int16", "int32", "int64")


def random_spec(draw: Draw, dtype: str) -> Spec:
    return draw.spec(tuple(size or 1 for size in draw.shape(1)), dtype)


@case_generator("VAR_HANDLE", "READ_VARIABLE", "ASSIGN_VARIABLE", "CALL_ONCE")
def running_sum(draw: Draw, op: str) -> Case:
    """Return a running sum, read before or after its assignment.

    Its initial value is random.
    """
    x = random_spec(draw, draw.pick(*SUMMABLE))
    initial, reads_after = draw.random_array(x), draw.chance(0.5)
    input_runs = [{"x0": draw.random_array(x)} for _ in range(3)]

    @with_variables
    def build(model: VariableNet) -> None:
        state = model.variable(x, initial)
        before = model.read(state, x)
        after = model.call("ADD", [model.input(x), before], x)
        state.assign(after)
        model.output(model.read(state, x) if reads_after else before, after)

    return net(op, "random", build, dtype=x.dtype, input_arrays=input_runs)


@case_generator("HASHTABLE", "HASHTABLE_FIND", "HASHTABLE_IMPORT", "HASHTABLE_SIZE")
def table_case(draw: Draw, op: str) -> Case:
    count = draw.between(0, 7)
    texts = np.array([f"{'é' * (k % 3)}{k}".encode() for k in draw.random.integers(0, 9, count)], object)
    numbers = draw.random.integers(-(2**40), 2**40, count)
    keys, values = (texts, numbers) if draw.chance(0.5) else (numbers, texts)
    absent_keys: Any = [b"x", b"1", b""] if keys.dtype == object else [0, 5, -7]
    requested_keys = np.resize(np.concatenate([keys, np.array(absent_keys, keys.dtype)]), (2, 3, 2))
    dtype = "string" if keys.dtype == object else "int64"
    if op == "HASHTABLE_SIZE":
        return net(op, "random", table_size(keys, values), dtype=dtype, runs=1)
    return net(
        op,
        "random",
        build_lookup(keys, values, draw.chance(0.5)),
        dtype=dtype,
        input_arrays={"lookup_keys": requested_keys},
        runs=1,
    )


@case_generator("IF", "STABLEHLO_CASE")
def branch_case(draw: Draw, op: str) -> Case:
    x = random_spec(draw, draw.pick("float32", "int8", "uint8", "int16", "int32"))
    choices = [pass_through, arithmetic_branch(x.dtype), *([negate] if x.dtype in ("float32", "int32") else [])]
    count = 2 if op == "IF" else draw.between(1, 4)
    branches = [draw.pick(*choices) for _ in range(count)]
    return (if_case if op == "IF" else switch_case)("random", [x], branches, dtype=x.dtype)


@case_generator("WHILE")
def doubling_loop(draw: Draw, op: str) -> Case:
    x = random_spec(draw, draw.pick("float32", "int8", "uint8", "int32"))
    return loop_case("random", [x], double, dtype=x.dtype, input_arrays=draw.pick(PLANS[:2], PLANS[2:]))


@case_generator("STABLEHLO_COMPOSITE")
def composite_call(draw: Draw, op: str) -> Case:
    x = random_spec(draw, draw.pick("float32", "int8", "uint8", "int16", "int32"))
    return composite_case("random", [x, x], [x], add_operands, dtype=x.dtype)
