"""A short run of the fuzzer with a fixed seed, and tests of its outcomes."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from itertools import cycle
from pathlib import Path

import numpy as np
import onnx
import pytest

from conformance.builder import ModelBuilder
from conformance.schema import enum
from onnx_tflite_plugin.conversion import convert_model
from onnx_tflite_plugin.host import Host
from onnx_tflite_plugin.source import read
from tests.helpers.changed_files import Change, buffer, change_fields, outputs, set_parameters, tensor
from tests.qa.fuzz import excuses, structure
from tests.qa.fuzz.campaign import Tally, inputs, make_input, run
from tests.qa.fuzz.child import Child
from tests.qa.fuzz.minimise import minimise

SEED, COUNT, THOROUGH = 20, 300, 2000  # 1,000 inputs take 10 s of processor time


@pytest.fixture(scope="module")
def child() -> Iterator[Child]:
    """Start a process that converts and compares files."""
    with Child() as child:
        yield child


def add() -> ModelBuilder:
    model = ModelBuilder()
    x = model.main.input("x", (2, 3))
    model.main.operator("ADD", [x, x], [y := model.main.tensor("y", (2, 3))])
    model.main.output(y)
    return model


def large() -> bytes:
    model = ModelBuilder()
    x = model.main.input("x", (1,))
    state = model.main.tensor("v", (1 << 29,), variable=True)
    model.main.operator("ADD", [x, state], [y := model.main.tensor("y", (1 << 29,))])
    model.main.output(y)
    return model.build()


def test_no_mutated_model_is_a_bug(child: Child, thorough: bool) -> None:
    count = THOROUGH if thorough else COUNT
    tally = Tally()
    for mutated, outcome in run(SEED, child, count=count):
        tally.add(mutated, outcome)
    bugs = [f"{mutated.name}: {outcome.line}" for mutated, outcome in tally.first.values() if outcome.kind == "bug"]
    assert not bugs
    assert sum(tally.kinds.values()) == count
    assert tally.kinds["equal"] > count / 20
    assert tally.kinds["invalid"] > count / 10


def test_outcomes_are_classified(child: Child) -> None:
    data = add().build()
    assert child.try_file(data).kind == "equal"
    assert child.try_file(data[:40]).kind == "invalid"
    assert child.try_file(large()).kind == "refused"


def test_crashed_or_slow_process_is_a_bug_and_is_replaced() -> None:
    with Child(seconds=0.0) as child:
        outcome = child.try_file(add().build())
        assert (outcome.kind, outcome.sort.partition(":")[0]) == ("bug", "over its time")
        child.seconds = 30.0
        assert child.try_file(add().build()).kind == "equal"
        os.kill(child._serving, signal.SIGKILL)
        while Path(f"/proc/{child._serving}").exists():
            time.sleep(0.01)
        assert child.try_file(add().build()).kind == "equal"


@pytest.mark.parametrize(("stage", "kind"), [("convert", "bug"), ("compare", "uncompared"), ("ask", "invalid")])
def test_crash_is_classified_by_its_stage(stage: str, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with Child() as child:
        messages = cycle([stage, {"ended": -signal.SIGABRT}])
        monkeypatch.setattr(child, "_read_message", lambda deadline, seconds: next(messages))
        outcome = child.try_file(add().build())
        assert (outcome.kind, outcome.text) == (kind, f"SIGABRT in {stage}")


def test_crash_that_does_not_repeat_is_not_a_bug(monkeypatch: pytest.MonkeyPatch) -> None:
    with Child() as child:
        messages = iter(["convert", {"ended": -signal.SIGABRT}, "convert", ["equal", "", "", "", 0.1]])
        monkeypatch.setattr(child, "_read_message", lambda deadline, seconds: next(messages))
        assert child.try_file(add().build()).kind == "equal"


def test_input_depends_only_on_seed_and_number() -> None:
    first_inputs = [mutated for mutated, _ in zip(inputs(SEED), range(12), strict=False)]
    assert len({mutated.data for mutated in first_inputs}) > 8
    again = make_input(SEED, int(first_inputs[3].name.split()[0].partition(":")[2]))
    assert again == first_inputs[3]
    assert all(mutated.data != mutated.original for mutated in first_inputs if mutated.name.endswith("structure"))


def test_every_mutation_changes_some_model() -> None:
    model = add()
    model.main.constant("c", np.arange(6, dtype=np.float32))
    before = model.build()
    tables = [structure.mutate(model.table(), seed) for seed in range(200)]
    assert sum(data is not None and data != before for data in tables) > 150


def test_minimise_removes_irrelevant_changes() -> None:
    original = bytes(64)
    data = bytearray(original)
    data[20], data[50] = 7, 9
    small = minimise(bytes(data), original, lambda trial: trial[20] == 7)
    assert [at for at, byte in enumerate(small) if byte] == [20]


def with_wrong_outputs(model: onnx.ModelProto) -> bytes:
    """Return the model with wrong outputs: x - x, or the complement for booleans."""
    types = onnx.TensorProto
    opposites = {types.FLOAT: "Sub", types.BOOL: "Not"}
    for output in model.graph.output:
        correct = f"{output.name}/correct"
        for node in model.graph.node:
            for names in (node.input, node.output):
                names[:] = [correct if name == output.name else name for name in names]
        op_type = opposites.get(output.type.tensor_type.elem_type, "BitwiseNot")
        operands = [correct, correct] if op_type == "Sub" else [correct]
        model.graph.node.append(onnx.helper.make_node(op_type, operands, [output.name]))
    return model.SerializeToString()


def replace_operator(code: str) -> Change:
    """Replace the model's first operator code with another."""
    number = enum("BuiltinOperator")[code]
    return lambda model: model.fields["operator_codes"][0].fields.update(
        builtin_code=number, deprecated_builtin_code=min(number, 127)
    )


HOST = Host(packs="builtin")
INFINITE = int(np.float32("inf").view(np.int32))
EXCUSED: list[tuple[str, str, Change]] = [
    ("numbers that are not finite or beyond 1e8", "DIV-float32_with_SIGN_BIT,_which_the_kernel_ignores", buffer(1, [INFINITE] * 210)),
    ("numbers that are not finite or beyond 1e8", "CONV_2D-rounded_per_image,_batch_of_1", set_parameters(1, [-7e34] * 13, [0] * 13)),
    (
        "stored shapes that LiteRT does not compute",
        "L2_POOL_2D-float32_of_dynamic_shape,_SAME_3x2_stride_1x1",
        tensor(1, shape_signature=[-1, 1, 1, 3]),
    ),
    ("division by zero", "DIV-float32_with_SIGN_BIT,_which_the_kernel_ignores", buffer(1, [0] * 210)),
    ("integer overflow", "MUL-int16", set_parameters(1, [65504.0], [0])),
    ("reads beyond a constant", "EMBEDDING_LOOKUP-int8_table", tensor(1, shape=[5, 11])),
    ("booleans other than 0 and 1", "LOGICAL_AND-bool_and_a_constant_(7,_1)", buffer(1, [2] * 7, "int8")),
    ("sparse constants read as dense", "DENSIFY-int8_weights_of_a_convolution", replace_operator("RELU6")),
    ("aliased inputs", "LSTM-uint8_with_five_operands,_states_as_graph_inputs", outputs(5, 2)),
    ("shifts and sizes undefined in C++", "BROADCAST_ARGS-int64_[]_and_[2,_3],_a_and_b_constant", buffer(2, [1 << 40, 3], "int64")),
]  # fmt: skip


@pytest.mark.parametrize(("reason", "case", "change"), EXCUSED, ids=[f"{row[0]}: {row[1]}" for row in EXCUSED])
def test_difference_is_excused_by_litert_behavior(reason: str, case: str, change: Change) -> None:
    """The outputs are wrong on purpose, because the excuse depends on the file only."""
    data = change_fields(case, change)
    assert excuses.excuse(data, with_wrong_outputs(convert_model(read(data), HOST).proto)) == reason


VALID = [
    "ADD-int8",
    "AVERAGE_POOL_2D-float32_with_RELU_N1_TO_1",
    "CONV_2D-int8_with_a_wrong_bias_scale,_which_the_kernel_ignores",
    "EMBEDDING_LOOKUP-int8_table",
    "LSTM-float32_in_a_loop",
    "TRANSPOSE_CONV-float32_SAME_stride_2x3",
]


@pytest.mark.parametrize("case", VALID)
def test_wrong_conversion_of_a_valid_file_is_not_excused(case: str) -> None:
    data = change_fields(case)
    assert excuses.excuse(data, with_wrong_outputs(convert_model(read(data), HOST).proto)) == ""


def test_values_between_those_of_kernel_sets_count_as_equal() -> None:
    sets = [np.array(values, np.float32) for values in ([1, 1, np.inf, 1], [2, 1, 5, 1])]
    replaced = excuses._replace_undecided(np.array([1.5, 3, 7, np.nan], np.float32), sets)
    np.testing.assert_array_equal(replaced, np.array([1, 3, np.inf, np.nan], np.float32))
