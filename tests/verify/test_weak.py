"""Tensors behind outputs that say little, and the operators that make them."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from conformance.models import Net, Spec, constant
from onnx_tflite_plugin import convert
from onnx_tflite_plugin.source.model import Array, Quantization, Tensor
from onnx_tflite_plugin.verify import verify
from onnx_tflite_plugin.verify.comparison.compare import Comparison
from onnx_tflite_plugin.verify.operators.weak import Weak
from onnx_tflite_plugin.verify.runtimes.ort import OrtError

FAR = Comparison("t", "step", 9.0, 1.0, 1.0, mean=5.0)
NEAR = Comparison("t", "step", 1.0, 0.1, 1.0, mean=0.1)


def before(tensor: Comparison, operator: Comparison | None, then: Comparison = NEAR) -> list[Comparison]:
    """What is told of a tensor in between, ``then`` being behind it; ``operator``: what comes of the operators alone, if anything."""
    code: Any = SimpleNamespace(code="RSQRT", inputs=())
    graph = SimpleNamespace(tensors=[SimpleNamespace(index=0)])
    search: Any = SimpleNamespace(
        producers={0: code},
        trial=SimpleNamespace(entry=SimpleNamespace(subgraph=graph)),
        comparisons=lambda runs: iter((one, SimpleNamespace(tensor=0, name="value")) for one in (tensor, then)),
    )
    weak = Weak(search, lambda *part: SimpleNamespace(comparisons=[]))
    weak._alone = lambda tensor, value: None if operator is None else [operator]  # type: ignore[method-assign]
    return weak._before([])


@pytest.mark.parametrize("operator", [FAR, None])
def test_a_tensor_far_off_is_told_where_its_operator_is_wrong_or_cannot_be_tried(operator: Comparison | None) -> None:
    (told,) = before(FAR, operator)
    assert "off by 5 LSB on average" in told.problem


def test_an_operator_that_is_right_makes_much_of_small_differences() -> None:
    assert not before(FAR, NEAR)


def test_a_tensor_of_another_shape_is_told_whatever_its_operator_does() -> None:
    (told,) = before(Comparison("t", "step", 0.0, 0.0, 1.0, problem="shape [2] for [3]"), NEAR)
    assert told.problem == "shape [2] for [3]"


def test_a_tensor_that_is_near_is_not_told() -> None:
    assert not before(NEAR, FAR)


@pytest.mark.parametrize("right", [True, False])
def test_behind_an_output_of_few_steps_the_operator_that_makes_it_is_tried_on_inputs_that_move_it(right: bool) -> None:
    output = Tensor(0, 7, "y", "uint8", (1, 5), (1, 5), quantization=Quantization((0.1,), (3,)))
    moving = Tensor(0, 3, "x", "uint8", (1, 5), (1, 5))
    maker = SimpleNamespace(code="SOFTMAX", inputs=(moving,), outputs=(output,))
    tried: list[Any] = []
    search: Any = SimpleNamespace(
        producers={7: maker},
        trial=SimpleNamespace(entry=SimpleNamespace(outputs=[output], subgraph=SimpleNamespace(tensors=[]))),
        comparisons=lambda runs: iter(()),
        stored=lambda tensor: f"stored {tensor.name}",
        part=lambda inputs, tensor, value: (tuple(inputs), f"{value} of {tensor.name}"),
    )
    weak = Weak(search, lambda *part: tried.append(part) or SimpleNamespace(comparisons=[NEAR if right else FAR]))
    wrong, notes = weak.examine([], {"builtin": [[np.array([[3, 4, 5, 3, 3]], np.uint8)]]}, [NEAR])
    assert tried == [((moving,), "stored y of y")]
    assert [one.name for one in wrong] == ([] if right else ["y of SOFTMAX alone"])
    assert notes == ["'y' spans 3 of 256 steps on these inputs: tensors before it were compared too"]


def test_a_tensor_is_far_off_beyond_twice_what_it_may_be_off_by() -> None:
    off = Comparison("t", "step", 9.0, 1.0, 3.0, mean=6.0)
    assert not before(off, None)
    assert before(replace(off, mean=6.1), None)


def test_the_first_tensor_far_off_settles_it() -> None:
    """What comes behind one whose operator is right has its differences from there."""
    assert not before(FAR, NEAR, then=FAR)


def test_where_the_tensors_between_cannot_be_kept_nothing_is_told_of_them() -> None:
    def fails(runs: Any) -> Any:
        raise OrtError("it does not run")

    search: Any = SimpleNamespace(comparisons=fails)
    assert Weak(search, lambda *part: SimpleNamespace(comparisons=[]))._before([]) == []


def notes_of(array: Array, dtype: str = "uint8", others: Array | None = None, *, quantized: bool = True) -> list[str]:
    """What is said of an output that no operator makes; ``others``: what LiteRT's other kernels gave."""
    output = Tensor(0, 7, "y", dtype, (), (), quantization=Quantization((0.1,), (3,)) if quantized else None)
    search: Any = SimpleNamespace(
        producers={},
        trial=SimpleNamespace(entry=SimpleNamespace(outputs=[output])),
        comparisons=lambda runs: iter(()),
        stored=lambda tensor: "",
    )
    sets = {"builtin": [[array]], "reference": [[array if others is None else others]]}
    return Weak(search, lambda *part: SimpleNamespace(comparisons=[FAR])).examine([], sets, [NEAR])[1]


def test_quantized_bytes_of_fewer_than_16_steps_say_little() -> None:
    few, enough = np.array([3, 17], np.uint8), np.array([3, 18], np.uint8)
    assert notes_of(few) == ["'y' spans 15 of 256 steps on these inputs: tensors before it were compared too"]
    assert notes_of(few.astype(np.int8), "int8")
    assert not notes_of(enough)
    assert not notes_of(few, others=enough)
    assert not notes_of(few.astype(np.int16), "int16")
    assert not notes_of(few, quantized=False)
    assert not notes_of(few[:1])
    assert not notes_of(few[:0])


@pytest.mark.parametrize(("mean", "spread", "wrong"), [(0.25, 0.0, 0), (0.26, 0.0, 1), (0.6, 0.3, 0), (0.61, 0.3, 1)])
def test_an_output_of_few_steps_may_be_off_by_rounding_or_what_kernels_differ_by(
    mean: float, spread: float, wrong: int
) -> None:
    output = Tensor(0, 7, "y", "uint8", (2,), (2,), quantization=Quantization((0.1,), (3,)))
    search: Any = SimpleNamespace(
        producers={},
        trial=SimpleNamespace(entry=SimpleNamespace(outputs=[output])),
        comparisons=lambda runs: iter(()),
        stored=lambda tensor: "",
    )
    judged = [Comparison("y", "step", 1.0, 0.5, 1.0, mean=mean, mean_spread=spread)]
    weak = Weak(search, lambda *part: SimpleNamespace(comparisons=[]))
    found, _ = weak.examine([], {"builtin": [[np.array([3, 5], np.uint8)]]}, judged)
    assert len(found) == wrong
    assert not any(one.ok for one in found)


def test_outputs_that_vary_are_not_looked_behind() -> None:
    search: Any = SimpleNamespace(trial=SimpleNamespace(entry=SimpleNamespace(outputs=[])))
    assert Weak(search, lambda *part: SimpleNamespace(comparisons=[])).examine([], {}, []) == ([], [])


def test_an_operator_that_does_not_run_by_itself_says_nothing() -> None:
    moving, output = (Tensor(0, k, name, "uint8", (1, 5), (1, 5)) for k, name in ((3, "x"), (7, "y")))

    def alone(*part: Any) -> Any:
        raise OrtError("it does not run")

    for part in (None, (b"", None)):
        search: Any = SimpleNamespace(
            producers={7: SimpleNamespace(code="SOFTMAX", inputs=(moving,), outputs=(output,))},
            stored=lambda tensor: "",
            part=lambda inputs, tensor, value, found=part: found,
        )
        assert Weak(search, alone)._last(output) == []


def test_an_operator_is_not_tried_on_two_inputs_that_are_one_value_of_the_onnx_model() -> None:
    """A RELU6 whose bound is beyond the integers is no node, and drawn apart from what it takes it would be another."""
    net, image = Net(), Spec((1, 6, 12, 4), "int8", 0.0117, -128)
    x = net.input(image)
    kernel = [
        constant(np.eye(4).reshape(4, 1, 1, 4) * 127, "int8", 1 / 127),
        constant(np.zeros(4), "int32", 0.0117 / 127),
    ]
    bounded = net.call("RELU6", [x], image, version=2)
    moved = net.call("CONV_2D", [bounded, *kernel], image, padding="VALID", stride_h=1, stride_w=1)
    net.output(net.call("SUB", [bounded, x], Spec((1, 6, 12, 4), "int8", 0.0039, -128)), moved)
    data = net.build()
    assert verify(data, convert(data, target="tvm", layout_plan="local")).ok
