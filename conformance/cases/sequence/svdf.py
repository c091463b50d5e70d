"""SVDF: ranks, memories of one run and more, every activation, hybrid and integer, states carried over fifty runs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from conformance.case import EVERY_OPSET, Case
from conformance.lstms import begin
from conformance.models import Net, Spec, constant, drawn, net, tensor

BATCH, INPUTS, UNITS, MEMORY = 3, 7, 5, 11
LONG = {"runs": 50}
RESET = {"options": {"state": "reset"}}
OUTPUTS = {"int8": (0.0293, -17)}


@dataclass(frozen=True)
class Svdf:
    """One operator of ``units`` * ``rank`` filters."""

    dtype: str = "float32"
    weights: str = "float32"
    rank: int = 2
    memory: int = MEMORY
    batch: int = BATCH
    inputs: int = INPUTS
    units: int = UNITS
    biased: bool = True
    activation: str = "RELU"
    variable: bool = True
    begun: str = ""
    given: bool = False
    asymmetric: bool = False
    point: int = 0
    output: tuple[float, int] = (0.0293, -17)
    state: float = 0.00011

    @property
    def filters(self) -> int:
        return self.units * self.rank

    def matrix(self, rows: int, columns: int, name: str, dtype: str, scale: float) -> Spec:
        if dtype == "float32":
            weights = constant(0.6 * drawn(rows, columns, seed=name))
            return Spec((rows, columns)) if self.given else weights
        low, high = {"uint8": (0, 255), "int16": (-32767, 32767)}.get(dtype, (-127, 127))
        return constant(drawn(rows, columns, dtype=dtype, seed=name, low=low, high=high), None, scale, self.point)

    def draw(self, model: Net) -> None:
        whole = self.dtype == "int8"
        x = model.input(tensor(self.batch, self.inputs, dtype=self.dtype, scale=0.031 if whole else None))
        features = self.matrix(self.filters, self.inputs, "features", self.weights, 0.0047)
        times = self.matrix(self.filters, self.memory, "times", "int16" if whole else self.weights, 1.3e-5)
        if self.weights in ("int8", "uint8") and not whole:
            times = self.matrix(self.filters, self.memory, "times", self.weights, 0.0031)
        values = drawn(self.units, seed="bias", low=-0.9, high=0.9)
        bias = constant((3e6 * values).astype("int32"), "int32", self.state * 1.3e-5) if whole else constant(values)
        memory = Spec(
            (self.batch, self.filters * self.memory), "int16" if whole else "float32", self.state if whole else None
        )
        state = (
            model.graph.tensor(
                "state",
                memory.shape,
                memory.dtype,
                quantization=memory.quantization,
                variable=True,
            )
            if self.variable
            else model.input(memory)
        )
        if self.begun:
            begin(model.graph, state, self.begun)
        scale, zero_point = self.output
        y = model.result(
            tensor(self.batch, self.units, dtype=self.dtype, scale=scale if whole else None, zero_point=zero_point)
        )
        refs = [x, model.place(features), model.place(times), model.place(bias) if self.biased else None, state]
        options = {
            "rank": self.rank,
            "fused_activation_function": self.activation,
            "asymmetric_quantize_inputs": self.asymmetric,
        }
        model.graph.operator("SVDF", refs, [y], options)
        model.output(y)


def svdf(name: str, case: dict[str, Any] | None = None, **fields: Any) -> Case:
    network = Svdf(**fields)
    return net("SVDF", name, network.draw, **{"dtype": network.dtype, **(case or {})})


def cases() -> Iterator[Case]:
    for activation in ("NONE", "RELU", "RELU_N1_TO_1", "RELU6", "TANH", "SIGN_BIT"):
        yield svdf(f"float32 with {activation}", activation=activation)
        for weights in ("int8", "uint8"):
            yield svdf(f"float32 on {weights} with {activation}", activation=activation, weights=weights)
    yield svdf("float32 over fifty runs", {**LONG, "opsets": EVERY_OPSET})
    yield svdf("float32 with weights that are graph inputs", given=True)
    yield svdf("float32 whose state is handed in", {"refused": "no variable tensors"}, variable=False)
    kinds: tuple[dict[str, Any], ...] = (
        {},
        {"weights": "int8"},
        {"weights": "uint8"},
        {"dtype": "int8", "weights": "int8"},
    )
    for kind in kinds:
        of = f"{kind.get('dtype', 'float32')} on {kind.get('weights', 'float32')}"
        yield svdf(f"{of} of rank 1", LONG, rank=1, **kind)
        yield svdf(f"{of} of rank 3", LONG, rank=3, **kind)
        yield svdf(f"{of} without a bias", biased=False, **kind)
        yield svdf(f"{of} that remembers one run", memory=1, **kind)
        yield svdf(f"{of} of one stream", batch=1, **kind)
        yield svdf(f"{of}, every run anew", RESET, **kind)
        if kind.get("weights", "float32") != "float32":
            yield svdf(f"{of} with zero points", {"refused": "zero points other than 0"}, point=3, **kind)
    yield svdf("float32 on int8, quantized with zero points", weights="int8", asymmetric=True)
    yield svdf("float32 that begins with float16", begun="float16")
    yield svdf("float32 that begins with float16 in every run", RESET, begun="float16")
    whole: dict[str, Any] = {"dtype": "int8", "weights": "int8"}
    yield svdf("int8 below and above its bounds", LONG, output=(0.0041, 3), **whole)
    yield svdf("int8 whose state is bounded", LONG, state=1.7e-5, **whole)
    insists = {"refused": "insists on RELU", "kernel_refuses": "params->activation != kTfLiteActRelu"}
    for activation in ("NONE", "RELU_N1_TO_1", "RELU6", "TANH", "SIGN_BIT"):
        yield svdf(f"int8 with {activation}", insists, activation=activation, **whole)
