"""The options of a conversion, as the command and the function take them, checked before work begins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

from onnx_tflite_plugin.errors import UnsupportedOption

if TYPE_CHECKING:
    from onnx_tflite_plugin.api.target import Target
    from onnx_tflite_plugin.host import Host

Shape = Sequence[int | str]


@dataclass(frozen=True)
class VerifyOptions:
    """What a verification runs on, and how near is near enough; see ``onnx_tflite_plugin.verify``."""

    inputs: Any = None
    seed: int = 0
    runs: int = 3
    tolerance: float | None = None
    ranges: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    partial: bool = False


@dataclass(frozen=True)
class ConvertOptions:
    """See :func:`onnx_tflite_plugin.convert`; every field is an option of the command ``convert``.

    Raises TypeError for a value of another type than the option takes.
    """

    opset: int | None = None
    target: str = "onnxruntime"
    quantization: str = "qdq"
    optimize: str = "faithful"
    weights: str = "keep"
    weights_dtype: str = "auto"
    io_layout: str = "source"
    layout: Mapping[str, str] = field(default_factory=dict)
    layout_plan: str = "least"
    input_shape: Mapping[str, Shape] = field(default_factory=dict)
    dynamic_batch: bool = False
    state: str = "io"
    unroll: int = 0
    signature: str | None = None
    inputs_at: Sequence[str] = ()
    outputs: Sequence[str] = ()
    keep_unknown: bool = False
    verify: bool | VerifyOptions = False
    check: str = "auto"
    prefer: Sequence[str] = ()
    block: Sequence[str] = ()
    packs: str | None = None

    @property
    def fold(self) -> bool:
        """Whether quantized constants become float in the file."""
        return self.weights == "fold" or self.quantization == "float"

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            takes = _TAKES[each.name]
            if not _KINDS[takes](value):
                raise TypeError(f"{each.name} is {takes}, not {type(value).__name__} {value!r}")


CHOICES: Mapping[str, Sequence[str]] = {
    "quantization": ("qdq", "float"),
    "optimize": ("none", "faithful", "speed"),
    "weights": ("keep", "fold"),
    "weights_dtype": ("auto", "uint8", "int8", "keep"),
    "io_layout": ("source", "onnx"),
    "layout_plan": ("least", "local"),
    "state": ("io", "reset"),
    "check": ("auto", "full", "standard"),
}


def _text(value: Any) -> bool:
    return isinstance(value, str)


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _texts(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes) and all(map(_text, value))


def _layouts(value: Any) -> bool:
    return isinstance(value, Mapping) and all(_text(key) and _text(layout) for key, layout in value.items())


def _shape(value: Any) -> bool:
    sized = isinstance(value, Sequence) and not isinstance(value, str | bytes)
    return sized and all(_text(size) or _whole(size) for size in value)


def _shapes(value: Any) -> bool:
    return isinstance(value, Mapping) and all(_text(key) and _shape(shape) for key, shape in value.items())


_KINDS = {
    "a str": _text,
    "a str or None": lambda value: value is None or _text(value),
    "an int or None": lambda value: value is None or _whole(value),
    "an int": _whole,
    "a bool": lambda value: isinstance(value, bool),
    "a bool or VerifyOptions": lambda value: isinstance(value, bool | VerifyOptions),
    "a sequence of str": _texts,
    "a mapping of input or output names to layouts as 'NHWC:NCHW'": _layouts,
    "a mapping of input names to shapes, sequences of int (or str, the name of an open size)": _shapes,
}
_TAKES = {
    **dict.fromkeys((*CHOICES, "target"), "a str"),
    **dict.fromkeys(("signature", "packs"), "a str or None"),
    **dict.fromkeys(("dynamic_batch", "keep_unknown"), "a bool"),
    **dict.fromkeys(("inputs_at", "outputs", "prefer", "block"), "a sequence of str"),
    "opset": "an int or None",
    "unroll": "an int",
    "verify": "a bool or VerifyOptions",
    "layout": "a mapping of input or output names to layouts as 'NHWC:NCHW'",
    "input_shape": "a mapping of input names to shapes, sequences of int (or str, the name of an open size)",
}


def target_of(options: ConvertOptions, host: Host) -> Target:
    """Return the target of these options, with the traits that they change.

    Raises UnsupportedOption for what does not exist or does not go together.
    """
    from onnx_tflite_plugin.api.checked import did_you_mean
    from onnx_tflite_plugin.rewrite import RULES

    for name, choices in CHOICES.items():
        if getattr(options, name) not in choices:
            raise UnsupportedOption(f"{flag(name)} is one of {', '.join(choices)}, not {getattr(options, name)!r}")
    if options.unroll < 0:
        raise UnsupportedOption(f"--unroll is how often a loop may run at most, not {options.unroll}")
    if options.keep_unknown and options.verify:
        raise UnsupportedOption("--verify runs the model, which no runtime here can do with --keep-unknown")
    target = host.targets.named(options.target)
    unknown = next((name for name in target.passes if name not in RULES and ":" not in name), None)
    if unknown is not None:
        raise UnsupportedOption(
            f"target {target.name} names a pass {unknown!r}, and there is none{did_you_mean(unknown, RULES)}"
        )
    low, _, high = target.opsets
    if options.opset is not None and not low <= options.opset <= high:
        raise UnsupportedOption(f"target {target.name} takes opsets {low} to {high}, not {options.opset}")
    if options.layout_plan == "local" and options.io_layout == "onnx":
        raise UnsupportedOption(
            "--layout-plan local keeps source order everywhere, so --io-layout onnx has nothing to follow"
        )
    if options.weights_dtype in ("uint8", "int8") and not target.saturates:
        raise UnsupportedOption(f"target {target.name} has one dtype for weights: --weights-dtype auto or keep")
    if options.weights_dtype == "keep":
        # No integer kernel of ONNX Runtime loads int2 weights.
        target = replace(target, weights={dtype: kept for dtype, kept in target.weights.items() if dtype == "int2"})
    if options.fold or options.optimize == "speed":
        target = replace(target, rounds_activations=False)
    return replace(target, multiplies_dynamically=False) if options.fold else target


def flag(name: str) -> str:
    return "--" + name.replace("_", "-")
