"""LSTM, a step at a time and over sequences: each optional part alone and together, states carried from run to run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any


from ..builder import TensorRef, quant
from ..case import EVERY_OPSET, Case
from ..models import Net, Spec, constant, drawn, net, tensor

SEQUENCE, STEP = "UNIDIRECTIONAL_SEQUENCE_LSTM", "LSTM"
BATCH, TIME, INPUTS, CELLS, OUTPUTS = 3, 5, 7, 11, 13
GATES = ("input", "forget", "cell", "output")
STATE = (0.0081, -3)


@dataclass(frozen=True)
class Lstm:
    """One operator. ``dtype`` is the activations', ``weights`` the matrices'; ``outputs`` is not 0 where it projects."""

    op: str = SEQUENCE
    dtype: str = "float32"
    weights: str = "float32"
    major: bool = False
    coupled: bool = False
    peephole: bool = False
    norm: bool = False
    outputs: int = 0
    biased: bool = True
    flat: bool = False
    short: bool = False
    variable: bool = True
    diagonal: bool = False
    per_row: bool = False
    given: bool = False
    intermediates: int = 5
    cells_scale: float = 2**-12
    batch: int = BATCH
    time: int | None = TIME
    inputs: int = INPUTS
    hidden: tuple[float, int] = STATE
    options: tuple[tuple[str, Any], ...] = ()

    # --- operands -----------------------------------------------------------------------------

    @property
    def made(self) -> int:
        return self.outputs or CELLS

    def shaped(self, size: int) -> tuple[int | None, ...]:
        if self.op == STEP:
            return (self.batch, size)
        return (self.time, self.batch, size) if self.major else (self.batch, self.time, size)

    @property
    def x(self) -> Spec:
        return tensor(*self.shaped(self.inputs), dtype=self.dtype, scale=0.031 if self.dtype == "int8" else None)

    @property
    def y(self) -> Spec:
        spec = tensor(*self.shaped(self.made), dtype=self.dtype)
        return spec if self.dtype == "float32" else replace(spec, scale=STATE[0], zero_point=STATE[1])

    def matrix(self, rows: int, columns: int, name: str, size: float = 0.0061) -> Spec:
        if self.weights == "float32":
            held = constant(0.6 * drawn(rows, columns, seed=name))
            return Spec((rows, columns)) if self.given else held
        low, high = (0, 255) if self.weights == "uint8" else (-127, 127)
        scales = (size * drawn(rows, seed="scales", low=0.4, high=1.6)).tolist() if self.per_row else size
        return constant(drawn(rows, columns, dtype=self.weights, seed=name, low=low, high=high), None, scales)

    def vector(self, size: int, name: str, step: float, most: float = 0.6) -> Spec:
        """A bias or coefficients: real numbers, or int32 and int16 in steps."""
        real = drawn(size, seed=name, low=-most, high=most)
        if self.dtype == "float32":
            return constant(real)
        return constant((real / step).astype("int32"), "int32", 1.0)

    def words(self, size: int, name: str) -> Spec:
        """Coefficients that are real, bytes as the matrices are, or words under integers."""
        if self.dtype == "int8":
            return constant(drawn(size, dtype="int16", seed=name), None, 2.1e-5)
        return constant(0.5 * drawn(size, seed=name))

    def seen(self, name: str) -> Spec:
        """Peepholes are of the matrices' dtype, or words."""
        if self.dtype == "int8" or self.weights == "float32":
            return self.words(CELLS, name)
        return constant(
            drawn(CELLS, dtype=self.weights, seed=name, low=0 if self.weights == "uint8" else -127), None, 0.005
        )

    def operands(self) -> list[Spec | None]:
        """All but the states, which follow after 18."""
        gates = [None if self.coupled and gate == "input" else gate for gate in GATES]
        size, shape = CELLS, (CELLS, self.made)
        matrices = [None if gate is None else self.matrix(size, self.inputs, f"x {gate}") for gate in gates]
        recurrent = [None if gate is None else self.matrix(*shape, f"h {gate}") for gate in gates]
        if self.diagonal:
            recurrent = [None if gate is None else constant(drawn(CELLS, seed=gate)) for gate in gates]
        peepholes = [None if gate is None or not self.peephole else self.seen(f"c {gate}") for gate in gates]
        step = 2.1e-5 / 1024 if self.norm else 0.031 * 0.0061
        biases = [None if gate is None else self.vector(size, f"b {gate}", step) for gate in gates]
        projection = self.matrix(self.outputs, size, "projection") if self.outputs else None
        added = (
            self.vector(self.outputs, "projection bias", 0.0061 * self.hidden[0])
            if self.outputs and self.biased
            else None
        )
        return [self.x, *matrices, *recurrent, peepholes[0], peepholes[1], peepholes[3], *biases, projection, added]

    def norms(self) -> list[Spec | None]:
        if self.short:
            return []
        kept = [None if not self.norm or (self.coupled and gate == "input") else gate for gate in GATES]
        return [None if gate is None else self.words(CELLS, f"norm {gate}") for gate in kept]

    # --- the operator -------------------------------------------------------------------------

    def state(self, model: Net, name: str, size: int, dtype: str, scale: tuple[float, int]) -> TensorRef:
        shape = (self.batch * size,) if self.flat else (self.batch, size)
        kept = quant(*scale) if self.dtype == "int8" else None
        return model.graph.tensor(name, shape, dtype, quantization=kept, variable=self.variable)

    def between(self, model: Net) -> Sequence[TensorRef]:
        """The intermediates, which hold scales only."""
        if self.dtype != "int8":
            return ()
        gate = quant(0.00031) if self.norm else None
        kinds = [("int16" if self.norm else "float32", gate)] * (self.intermediates - 1)
        kinds.append(("int8", quant(*self.hidden)))
        return [
            model.graph.tensor(f"between {k}", (0,), dtype, quantization=held) for k, (dtype, held) in enumerate(kinds)
        ]

    def call(self, model: Net, x: TensorRef | None = None, name: str = "") -> TensorRef:
        specs = self.operands()
        refs = [None if spec is None else model.place(spec) for spec in (specs if x is None else specs[1:])]
        refs = refs if x is None else [x, *refs]
        small = self.dtype == "int8"
        hidden = self.state(model, f"{name}hidden", self.made, self.dtype, STATE)
        cells = self.state(model, f"{name}cells", CELLS, "int16" if small else "float32", (self.cells_scale, 0))
        norms = [None if spec is None else model.place(spec) for spec in self.norms()]
        y = model.result(self.y)
        options = {"fused_activation_function": "TANH", **dict(self.options)}
        if self.op == SEQUENCE:
            options["time_major"] = self.major
        operands = [*refs, hidden, cells, *norms]
        model.graph.operator(self.op, operands, [y], options, intermediates=self.between(model))
        return y

    def draw(self, model: Net) -> None:
        model.output(self.call(model))

    def case(self, name: str, **case: Any) -> Case:
        return net(self.op, name, self.draw, **{"dtype": self.dtype, **case})


def lstm(name: str, case: dict[str, Any] | None = None, **fields: Any) -> Case:
    """One operator; whatever is no field of it is an option."""
    known = {key: value for key, value in fields.items() if key in Lstm.__dataclass_fields__}
    options = tuple((key, value) for key, value in fields.items() if key not in known)
    return Lstm(**known, options=options).case(name, **(case or {}))


PARTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "whose cells are bounded": {"cell_clip": 0.31},
    "without an input gate": {"coupled": True},
    "with peepholes": {"peephole": True},
    "with peepholes and no input gate": {"peephole": True, "coupled": True},
    "that projects": {"outputs": OUTPUTS},
    "that projects without a bias": {"outputs": OUTPUTS, "biased": False},
    "whose projections are bounded": {"outputs": OUTPUTS, "proj_clip": 0.23},
    "that normalizes": {"norm": True},
    "that normalizes, without an input gate": {"norm": True, "coupled": True},
}


def cases() -> Iterator[Case]:
    for op in (SEQUENCE, STEP):
        yield from real(op)
        yield from hybrid(op)
        yield from integer(op)
        yield from refused(op)
    yield from sequences()


def real(op: str) -> Iterator[Case]:
    for name, part in PARTS.items():
        opsets = {"opsets": EVERY_OPSET} if name in ("plain", "whose cells are bounded") else {}
        yield lstm(f"float32 {name}", opsets, op=op, **part)
    everything = {"norm": True, "peephole": True, "outputs": OUTPUTS, "cell_clip": 0.47, "proj_clip": 0.4}
    yield lstm("float32 with everything", op=op, **everything)
    yield lstm("float32 of 20 operands", op=op, short=True)
    yield lstm("float32 whose states have one axis", op=op, flat=True, cell_clip=1.1)
    for activation in ("RELU", "RELU6"):
        yield lstm(f"float32 with {activation}", op=op, fused_activation_function=activation)
    yield lstm("float32 with weights that are graph inputs", op=op, given=True)
    yield lstm("float32 with bounded cells and weights that are graph inputs", op=op, given=True, cell_clip=0.7)


def hybrid(op: str) -> Iterator[Case]:
    for weights in ("int8", "uint8"):
        for name in ("plain", "whose cells are bounded", "without an input gate", "with peepholes", "that projects"):
            if weights == "uint8" and name == "with peepholes":
                continue
            yield lstm(f"float32 on {weights} {name}", op=op, weights=weights, **PARTS[name])
    yield lstm("float32 on int8 that normalizes", op=op, weights="int8", norm=True)
    yield lstm("float32 on int8, quantized with zero points", op=op, weights="int8", asymmetric_quantize_inputs=True)


def integer(op: str) -> Iterator[Case]:
    for name, part in PARTS.items():
        peeped = {"outputs": 0} if part.get("peephole") else {}
        yield lstm(f"int8 {name}", op=op, dtype="int8", weights="int8", **part, **peeped)
    for scale in (-15, -9):
        yield lstm(
            f"int8 with cells in steps of 2^{scale}", op=op, dtype="int8", weights="int8", cells_scale=2.0**scale
        )
    yield lstm(
        "int8 that projects from another zero point",
        op=op,
        dtype="int8",
        weights="int8",
        outputs=OUTPUTS,
        hidden=(0.0073, 31),
    )
    yield lstm("int8 with everything", op=op, dtype="int8", weights="int8", norm=True, peephole=True, cell_clip=0.47)
    yield lstm("int8 whose states have one axis", op=op, dtype="int8", weights="int8", flat=True)


def sequences() -> Iterator[Case]:
    for dtype, weights in (("float32", "float32"), ("float32", "int8"), ("int8", "int8")):
        for clip in (0.0, 0.31):
            name = f"{dtype} on {weights}, time first" + (", with bounded cells" if clip else "")
            yield lstm(name, dtype=dtype, weights=weights, major=True, cell_clip=clip)
        yield lstm(f"{dtype} on {weights} of one sequence", dtype=dtype, weights=weights, batch=1)
        yield lstm(f"{dtype} on {weights} of one step", dtype=dtype, weights=weights, time=1)
    for clip in (0.0, 0.31):
        bounded = " with bounded cells" if clip else ""
        lengths = {"x0": drawn(BATCH, TIME, INPUTS)}
        yield lstm(f"float32 of unknown length{bounded}", {"given": lengths}, time=None, cell_clip=clip)
        for dtype in ("float32", "int8"):
            yield net(SEQUENCE, f"{dtype}, two on end{bounded}", stacked(dtype, clip), dtype=dtype, transposes=2)


def stacked(dtype: str, clip: float) -> Callable[[Net], None]:
    """The second one takes what the first gives: nothing is transposed between them."""
    weights = "int8" if dtype == "int8" else "float32"

    def draw(model: Net) -> None:
        options = (("cell_clip", clip),)
        first = Lstm(dtype=dtype, weights=weights, options=options).call(model, name="first ")
        second = replace(Lstm(dtype=dtype, weights=weights, options=options), inputs=CELLS)
        model.output(second.call(model, first, "second "))

    return draw


def refused(op: str) -> Iterator[Case]:
    yield lstm("float32 without an activation", {"refused": "activation NONE"}, op=op, fused_activation_function="NONE")
    rows = {"refused": "a scale per row"}
    yield lstm("float32 with scales per row", rows, op=op, weights="int8", per_row=True)
    yield lstm(
        "int8 with 8 bit gates",
        {"refused": "mixes up the scales"},
        op=op,
        dtype="int8",
        weights="int8",
        intermediates=12,
    )
    odd = {"refused": "no power of two"}
    yield lstm("int8 with odd cells", odd, op=op, dtype="int8", weights="int8", cells_scale=0.0003)
    mixed = {"refused": "mixes up its cells"}
    yield lstm(
        "int8 that peeps and projects", mixed, op=op, dtype="int8", weights="int8", peephole=True, outputs=OUTPUTS
    )
    if op == SEQUENCE:
        yield lstm("float32 with diagonal matrices", {"refused": "diagonal"}, diagonal=True)
