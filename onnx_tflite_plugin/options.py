"""The options of a conversion, as the command and the function take them, checked before work begins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from onnx_tflite_plugin.errors import UnsupportedOption
from onnx_tflite_plugin.targets import Target, target_named


@dataclass(frozen=True)
class ConvertOptions:
    """See ``python -m onnx_tflite_plugin convert --help``; every field is an option of that command."""

    opset: int | None = None
    target: str = "onnxruntime"
    quantization: str = "qdq"
    optimize: str = "faithful"
    weights: str = "keep"
    weights_dtype: str = "auto"
    io_layout: str = "source"
    layout: Mapping[str, str] = field(default_factory=dict)
    layout_plan: str = "least"
    input_shape: Mapping[str, Sequence[int]] = field(default_factory=dict)
    dynamic_batch: bool = False
    state: str = "io"
    signature: str | None = None
    keep_unknown: bool = False
    verify: bool = False
    prefer: Sequence[str] = ()
    block: Sequence[str] = ()
    packs: str | None = None

    @property
    def fold(self) -> bool:
        """Whether quantized constants become float in the file."""
        return self.weights == "fold" or self.quantization == "float"


CHOICES: Mapping[str, Sequence[str]] = {
    "quantization": ("qdq", "float"),
    "optimize": ("none", "faithful", "speed"),
    "weights": ("keep", "fold"),
    "weights_dtype": ("auto", "uint8", "int8", "keep"),
    "io_layout": ("source", "onnx"),
    "layout_plan": ("least", "local"),
    "state": ("io", "reset"),
}

# What the interface names and this version does not do yet: refused, never ignored.
LATER: Mapping[str, object] = {
    "keep_unknown": True,
}


def target_of(options: ConvertOptions) -> Target:
    """The target these options ask for, with the traits that they change.

    Raises UnsupportedOption for what does not exist or does not go together.
    """
    for name, choices in CHOICES.items():
        if getattr(options, name) not in choices:
            raise UnsupportedOption(f"{flag(name)} is one of {', '.join(choices)}, not {getattr(options, name)!r}")
    for name, value in LATER.items():
        if getattr(options, name) == value:
            text = flag(name) if value is True else f"{flag(name)} {value}"
            raise UnsupportedOption(f"{text} is not available in this version; leave it out")
    target = target_named(options.target)
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
        target = replace(target, weights={})
    return replace(target, multiplies_dynamically=False) if options.fold else target


def flag(name: str) -> str:
    return "--" + name.replace("_", "-")
