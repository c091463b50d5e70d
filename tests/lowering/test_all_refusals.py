"""All refusals of a model are reported in one run."""

from __future__ import annotations

import pytest

from conformance.builder import ModelBuilder
from onnx_tflite_plugin.api import Context, Handler, Refusal, Transparent, Value, handler
from onnx_tflite_plugin.conversion import convert
from onnx_tflite_plugin.errors import HandlerError
from onnx_tflite_plugin.host import Host


def make_refusing_handler(code: str, reason: str) -> Handler:
    @handler(code, max_version=1, layout=Transparent())
    def refuse(ctx: Context, x: Value) -> Value:
        raise Refusal(f"{reason} of {x.dtype} {list(x.shape or ())}")

    return refuse


@handler("CUSTOM.Raises", max_version=1, layout=Transparent())
def raises(ctx: Context, x: Value) -> Value:
    """Raise an exception other than Refusal."""
    raise ValueError("bad luck")


HANDLERS = {
    "CUSTOM.First": make_refusing_handler("CUSTOM.First", "no first"),
    "CUSTOM.Second": make_refusing_handler("CUSTOM.Second", "no second"),
    "CUSTOM.Raises": raises,
}


def problems_of(*chains: tuple[str, ...]) -> list[str]:
    """Return the problems of a model with chains of operators on one input."""
    model = ModelBuilder()
    g = model.main
    x = g.input("x", (2, 3))
    for k, codes in enumerate(chains):
        value = x
        for n, code in enumerate(codes):
            result = g.tensor(f"y{k}{n}", (2, 3))
            g.operator(code, [value], [result])
            value = result
        g.output(value)
    with pytest.raises(HandlerError) as caught:
        convert(model.build(), host=Host(packs="builtin", handlers=HANDLERS))
    return [f"{problem.where}: {problem.reason}" for problem in caught.value.problems]


def test_downstream_refusals_are_reported_last() -> None:
    assert problems_of(("CUSTOM.First", "ABS", "CUSTOM.Second"), ("CUSTOM.Second",)) == [
        "op 0 CUSTOM.First v1 'y00': no first of FLOAT [2, 3]",
        "op 3 CUSTOM.Second v1 'y10': no second of FLOAT [2, 3]",
        "op 2 CUSTOM.Second v1 'y02': no second of FLOAT [2, 3]",
    ]


def test_exception_downstream_of_a_refusal_is_not_reported() -> None:
    (problem,) = problems_of(("CUSTOM.First", "CUSTOM.Raises", "ABS"))
    assert problem.startswith("op 0 CUSTOM.First")


def test_refusal_downstream_of_an_exception_is_reported() -> None:
    first, second = problems_of(("CUSTOM.Raises", "CUSTOM.First"))
    assert "ValueError: bad luck" in first
    assert second.startswith("op 1 CUSTOM.First")
