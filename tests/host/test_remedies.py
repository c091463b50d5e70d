"""Remedies for missing operators: options that cut a model without them."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

import onnx_tflite_plugin as otp
from conformance.builder import ModelBuilder
from tests.helpers.command import Run


def chain(*codes: str) -> bytes:
    """Return a model that applies operators to ``x``.

    The last result is ``y``, the others are ``t0``, ``t1``, ...
    """
    model = ModelBuilder()
    g = model.main
    value = g.input("x", (2, 3))
    for k, code in enumerate(codes):
        result = g.tensor("y" if k == len(codes) - 1 else f"t{k}", (2, 3))
        g.operator(code, [value], [result])
        value = result
    g.output(value)
    return model.build()


@pytest.mark.parametrize(
    ("codes", "remedies"),
    [
        (("CUSTOM.A", "NEG", "EXP"), ["2 operators after it: inputs_at=['t0']"]),
        (("NEG", "CUSTOM.A", "CUSTOM.B"), ["operator before all of them: outputs=['t0']"]),
        (("NEG", "CUSTOM.A", "EXP"), ["operator after it: inputs_at=['t1']", "operator before it: outputs=['t0']"]),
        (("CUSTOM.A", "NEG", "CUSTOM.A"), ["operator between them: inputs_at=['t0'], outputs=['t1']"]),
        (("CUSTOM.A", "CUSTOM.B"), []),
        (("CUSTOM.A",), []),
    ],
)
def test_submodels_have_no_operator_without_a_handler(codes: tuple[str, ...], remedies: list[str]) -> None:
    with pytest.raises(otp.ConversionError) as caught:
        otp.convert(chain(*codes))
    hint = caught.value.problems[0].hint
    assert re.findall(r"to convert the (.*?)(?=; to convert|$)", hint) == remedies
    for remedy in remedies:
        assert otp.convert(chain(*codes), **eval(f"dict({remedy.partition(': ')[2]})")).report.nodes


def test_the_command_prints_options_to_paste(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "model.tflite"
    path.write_bytes(chain("CUSTOM.A", "NEG", "CUSTOM.B"))
    err = run("convert", path).err
    options = shlex.split(err.partition("between them: ")[2].splitlines()[0])
    assert options == ["--inputs-at", "t0", "--outputs", "t1"]
    assert run("convert", path, *options).code == 0


def test_tensor_without_a_usable_name_is_selected_by_index() -> None:
    model = ModelBuilder()
    g = model.main
    x, inner, y = g.input("x", (2, 3)), g.tensor("a,b", (2, 3)), g.tensor("y", (2, 3))
    g.operator("CUSTOM.A", [x], [inner])
    g.operator("NEG", [inner], [y])
    g.output(y)
    with pytest.raises(otp.ConversionError, match=r"inputs_at=\['#1'\]"):
        otp.convert(model.build())


def test_error_prints_a_shared_hint_once() -> None:
    with pytest.raises(otp.ConversionError) as caught:
        otp.convert(chain("CUSTOM.A", "CUSTOM.B", "CUSTOM.FlexErfinv"))
    assert str(caught.value).count("new-pack") == 1
    assert "hint to the 3 problems above: an op pack can convert them" in str(caught.value)
    assert len({problem.hint for problem in caught.value.problems}) == 1


def test_operators_in_a_called_subgraph_have_no_cut() -> None:
    model = ModelBuilder()
    body = model.subgraph("body")
    z = body.input("z", (2, 3))
    body.operator("CUSTOM.A", [z], [w := body.tensor("w", (2, 3))])
    body.output(w)
    g = model.main
    x, t, y = g.input("x", (2, 3)), g.tensor("t", (2, 3)), g.tensor("y", (2, 3))
    g.operator("NEG", [x], [t])
    g.operator("STABLEHLO_COMPOSITE", [t], [y], {"decomposition_subgraph_index": 1, "name": "odd"})
    g.output(y)
    with pytest.raises(otp.ConversionError) as caught:
        otp.convert(model.build())
    assert "to convert the" not in caught.value.problems[0].hint


def test_operator_that_its_handler_declines_needs_no_pack() -> None:
    with pytest.raises(otp.ConversionError, match="NodeDef") as caught:
        otp.convert(chain("CUSTOM.FlexNeg"))
    assert "new-pack" not in str(caught.value)
