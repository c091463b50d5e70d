"""Test renaming of graph inputs and outputs by the option and by a hook."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import onnx_tflite_plugin as otp
from conformance.builder import ModelBuilder
from conformance.cases.state.variables import running_sum
from conformance.models import Net
from onnx_tflite_plugin.errors import UnsupportedOption
from tests.helpers.pack_files import install

DIGITS = Path(__file__).parents[2] / "examples" / "digits_int8.tflite"
HOOKS = """
from onnx_tflite_plugin.api import hookimpl

@hookimpl
def rename(inputs, outputs):
    return {RETURNED}
"""


def names(conversion: otp.Conversion) -> tuple[list[str], list[str]]:
    graph = conversion.proto.graph
    return [value.name for value in graph.input], [value.name for value in graph.output]


def sums() -> bytes:
    """Return a model with inputs a and b, an inner sum "taken", and outputs c and d."""
    model = ModelBuilder()
    g = model.main
    a, b = (g.input(name, (2, 3)) for name in "ab")
    inner, c, d = (g.tensor(name, (2, 3)) for name in ("taken", "c", "d"))
    g.operator("ADD", [a, b], [inner])
    g.operator("MUL", [inner, a], [c])
    g.operator("SUB", [inner, b], [d])
    g.output(c, d)
    return model.build()


@pytest.mark.parametrize("key", ["b", "1"])
def test_renames_an_input_by_name_or_position(key: str) -> None:
    conversion = otp.convert(sums(), rename={key: "second", "3": "difference"})
    assert names(conversion) == (["a", "second"], ["c", "difference"])
    assert [model_input.name for model_input in conversion.report.inputs] == ["a", "second"]
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    results = otp.Session(conversion).run({"a": x, "second": 2 * x})
    assert np.array_equal(results["difference"], x)


def test_inner_value_with_the_new_name_is_renamed() -> None:
    conversion = otp.convert(sums(), rename={"c": "taken"})
    assert names(conversion)[1] == ["taken", "d"]
    value_names = [name for node in conversion.proto.graph.node for name in node.output]
    assert len(value_names) == len(set(value_names))
    assert conversion.verify().ok


def test_verify_uses_new_names() -> None:
    conversion = otp.convert(DIGITS, rename={"image": "pixels", "probabilities": "scores"})
    image = np.zeros((1, 8, 8, 1), np.int8)
    verification = conversion.verify(inputs={"pixels": image})
    assert verification.ok
    assert [comparison.name for comparison in verification.comparisons] == ["scores"]


@pytest.mark.parametrize(
    ("renames", "reason"),
    [
        ({"nosuch": "x"}, "available names: a, b, c, d"),
        ({"a": "b"}, "another input or output has that name"),
        ({"a": "x", "b": "x"}, "another input or output has that name"),
        ({"a": ""}, "it is empty"),
        ({"a": "x", "0": "y"}, "given twice"),
    ],
)
def test_rejects_invalid_renames(renames: dict[str, str], reason: str) -> None:
    with pytest.raises(UnsupportedOption, match=reason):
        otp.convert(sums(), rename=renames)


def install_rename_hook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, returned: str) -> None:
    source = HOOKS.replace("{RETURNED}", returned)
    install(tmp_path, "naming", "naming", source, "[onnx_tflite_plugin.hooks]\nnaming = naming\n")
    monkeypatch.syspath_prepend(str(tmp_path))


def test_option_overrides_a_renaming_hook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install_rename_hook(tmp_path, monkeypatch, "{name: name.upper() for name in (*inputs, *outputs)}")
    assert names(otp.convert(sums(), rename={"a": "first"})) == (["first", "B"], ["C", "D"])


def test_hook_may_map_a_name_to_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install_rename_hook(tmp_path, monkeypatch, "{name: name.replace('a', 'x') for name in (*inputs, *outputs)}")
    conversion = otp.convert(sums())
    assert names(conversion) == (["x", "b"], ["c", "d"])
    assert not conversion.report.warnings


@pytest.mark.parametrize(
    ("returned", "reason"),
    [
        ("['a']", "not a mapping of names"),
        ("{'nosuch': 'x'}", "'nosuch', which is not a graph input or output; those are 'a', 'b', 'c', 'd'"),
        ("{'a': 'c'}", "it renames 'a' to 'c', but 'c' is taken by a graph input or output"),
        ("{'a': 'x', 'b': 'x'}", "it gives 'a' and 'b' the same new name 'x'"),
        ("{'a': ''}", "its new name '' is empty"),
        ("1 / 0", "ZeroDivisionError"),
    ],
)
def test_skips_a_failing_hook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, returned: str, reason: str) -> None:
    install_rename_hook(tmp_path, monkeypatch, returned)
    conversion = otp.convert(sums())
    assert names(conversion) == (["a", "b"], ["c", "d"])
    assert any(reason in warning for warning in conversion.report.warnings), conversion.report.warnings


def test_stateful_model_runs_with_renamed_inputs() -> None:
    net = Net()
    running_sum("float32")(net)
    conversion = otp.convert(net.build(), rename={"x0": "audio", "y0": "total"}, verify=True)
    assert names(conversion) == (["audio", "state"], ["total", "state:next"])
    session, x = otp.Session(conversion), np.full((3, 5), 2, np.float32)
    first, second = (session.run({"audio": x})["total"] for _ in range(2))
    assert np.allclose(second - first, x, atol=1e-6)


def test_rejects_renaming_a_state() -> None:
    net = Net()
    running_sum("float32")(net)
    with pytest.raises(UnsupportedOption, match=r"rename\['state'\]: no graph input or output has this name"):
        otp.convert(net.build(), rename={"state": "memory"})
