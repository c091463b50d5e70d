"""Options of a conversion: names, types, defaults, groups and help texts."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cache
from typing import TYPE_CHECKING, Any, Generic, Literal, Self, TypedDict, TypeVar, get_args, get_origin, get_type_hints

from onnx_tflite_plugin.checked import check_keywords, describe, did_you_mean, find_mismatch, format_type, has_type
from onnx_tflite_plugin.errors import UnsupportedOption

Shape = Sequence[int | str]
Optimize = Literal["none", "readable", "faithful", "speed"]
T = TypeVar("T")
if TYPE_CHECKING:
    ByInput = Mapping[str, T] | Mapping[int, T] | Mapping[str | int, T]

    class InputField(Generic[T]):
        """Type of a field with text as keys, to which callers may also assign positions."""

        def __get__(self, instance: object, owner: object = None) -> Mapping[str, T]: ...
        def __set__(self, instance: object, value: Mapping[Any, T]) -> None: ...
else:  # positions become text before the type is checked
    ByInput = InputField = Mapping[str, T]
"""Values by the name or the position of a graph input or output, as callers may pass them."""
ALL, EACH = "all", "each"
"""Values of ``signature`` that select all signatures: as one model, or as a model each."""

COMMON, SHAPES, LAYOUT, QUANTIZATION = "Common", "Shapes and parts", "Layout", "Quantization"
VERIFICATION, ADVANCED = "Verification", "Advanced"
MAX_THREADS = 256
"""Heuristic. On 2 processors, 200 threads work; 100,000 need 10 GB, and their first run does not end in 9 minutes."""
NAMES = "NAME,…"
"""Placeholder of tensor names joined by commas, in help texts."""


def _option(group: str, default: Any, help: str, **attributes: Any) -> Any:
    """Return a dataclass field. ``attributes``: further fields of its :class:`Option`."""
    value: dict[str, Any] = {"default_factory": default} if default is dict else {"default": default}
    return field(**value, metadata={"group": group, "help": help, **attributes})


class CheckedOptions:
    """A dataclass that checks its options.

    Raises TypeError for an unknown keyword or a wrong type, UnsupportedOption for a wrong value.
    """

    def __new__(cls, *args: Any, **keywords: Any) -> Self:
        options_class: Any = cls
        known = [option.name for option in options_of(options_class)]
        check_keywords(cls.__name__, keywords, known, misplaced_keyword_remedies(cls.__name__, known))
        return super().__new__(cls)

    def __post_init__(self) -> None:
        cls: Any = type(self)
        for option in options_of(cls):
            if get_origin(option.type) is Mapping:
                object.__setattr__(self, option.name, positions_as_text(getattr(self, option.name)))
            option.check(getattr(self, option.name))

    def __repr__(self) -> str:
        """Return the call that creates equal options, without fields that have defaults."""
        cls: Any = type(self)
        values = ((option, getattr(self, option.name)) for option in options_of(cls))
        changed = ", ".join(f"{option.name}={value!r}" for option, value in values if value != option.default)
        return f"{cls.__name__}({changed})"


def positions_as_text(values: Any) -> Any:
    """Return a mapping with positions as text: ``{"0": …}`` for ``{0: …}``."""
    if not isinstance(values, Mapping) or not any(has_type(key, int) for key in values):
        return values
    return {str(key) if has_type(key, int) else key: value for key, value in values.items()}


@dataclass(frozen=True, repr=False)
class VerifyOptions(CheckedOptions):
    """Data and tolerance of a verification; see ``onnx_tflite_plugin.verify``."""

    inputs: Any = _option(
        VERIFICATION, None,
        "Your data: an .npz with arrays by input name, an .npy, an image, or a folder of these. Several inputs may be stacked "
        "along the first axis.",
        metavar="PATH",
        python="Your data: an array, arrays by input name, a list of these, or the path of an .npz with such arrays, an .npy, an "
        "image, or a folder. Several inputs may be stacked along the first axis.",
    )  # fmt: skip
    ranges: InputField[tuple[float, float]] = _option(
        VERIFICATION, dict, "Minimum and maximum of the random values of an input.",
        flag="--range", metavar="NAME=LOW:HIGH", example="{'image': (0, 255)}",
    )  # fmt: skip
    seed: int = _option(VERIFICATION, 0, "Seed of the random inputs.", metavar="N", minimum=0)
    runs: int = _option(
        VERIFICATION, 3, "Number of successive runs; states are carried from run to run.", metavar="N", minimum=1
    )
    tolerance: float | None = _option(
        VERIFICATION, None,
        "Maximum error of float outputs, as a fraction of their range. An output beyond it fails, even if every operator "
        "agrees. By default, the verdict depends only on the per-operator comparison.",
        metavar="FRACTION", minimum=0,
    )  # fmt: skip
    partial: bool = _option(VERIFICATION, False, "Accept an inconclusive verdict as a success.")


@dataclass(frozen=True, repr=False)
class ConvertOptions(CheckedOptions):
    """Options of :func:`onnx_tflite_plugin.convert` and of the command ``convert``."""

    target: str = _option(COMMON, "onnxruntime", "Runtime to convert for; op packs may add targets.")
    opset: int | None = _option(
        COMMON, None, "ONNX opset. By default the target's opset, or a newer one if an operator needs it.", metavar="N"
    )
    optimize: Optimize = _option(
        COMMON, "faithful",
        "faithful: rewrites that do not change results. speed: also rewrites and fusions that skip a rounding. none: no "
        "rewrites. readable: no rewrites for speed, and a plain graph for a viewer such as Netron: weights need no If or Cast, and "
        "constants are named after their use. Combine readable with --target generic, which keeps int8 activations and uses "
        "only standard operators. Fusions that do not change results apply in every mode.",
    )  # fmt: skip
    signature: str | None = _option(
        COMMON, None,
        "Key of the signature to convert; by default, the main subgraph is converted. all: one model of all signatures if "
        "they differ only in the length of a sequence, otherwise one file per signature. each: always one file per signature "
        "(in Python: call convert once per key).",
        metavar="KEY|all|each",
        python="Key of the signature to convert; by default, the main subgraph is converted. 'all' makes one model of all "
        "signatures, which may differ only in the length of a sequence. For one model per signature, call convert with each key.",
    )  # fmt: skip
    verify: bool | VerifyOptions = _option(
        COMMON, False,
        "Compare with LiteRT (extra: verify); a model that differs is not written. --verify=partial, in Python "
        "VerifyOptions(partial=True), accepts an inconclusive verdict.",
        values=("full", "partial"),
        python="Compare with LiteRT (extra: verify), and raise VerificationError if the models differ. True, or the data and "
        "tolerance as VerifyOptions; VerifyOptions(partial=True) accepts an inconclusive verdict.",
    )  # fmt: skip
    input_shape: InputField[Shape] = _option(
        SHAPES, dict,
        "Shape of an input, as if the model had been written for it. A name instead of a size makes the dimension dynamic. "
        "NAME is the name in the signature, the name of the TFLite tensor, or a position: 0=1,224,224,3.",
        metavar="NAME=N,224,224,3", example="{'image': ('N', 224, 224, 3)}",
        python="Shape of inputs by name, as if the model had been written for it. A name instead of a size makes the dimension "
        "dynamic. Inputs are named as in the signature or as the TFLite tensor, or by position: {0: (1, 224, 224, 3)}.",
    )  # fmt: skip
    rename: InputField[str] = _option(
        COMMON, dict,
        "New name of an input or output. OLD is the name in the signature, the name of the TFLite tensor, or a position. "
        "Positions count the inputs, then the outputs.",
        metavar="OLD=NEW", example="{'old': 'new'}",
        python="New names of inputs and outputs. The old name is the name in the signature, the name of the TFLite tensor, or "
        "a position. Positions count the inputs, then the outputs.",
    )  # fmt: skip
    dynamic_batch: bool = _option(
        SHAPES, False, "Make the first dimension of the inputs dynamic; every operator must support any batch size."
    )
    inputs_at: Sequence[str] = _option(
        SHAPES, (), "Tensors that become the inputs; operators upstream of them are left out.", metavar=NAMES
    )
    outputs: Sequence[str] = _option(
        SHAPES, (), "Tensors that become the outputs; operators that they do not need are left out.", metavar=NAMES
    )
    io_layout: Literal["source", "onnx"] = _option(
        LAYOUT,
        "source",
        "Layout of inputs and outputs. source: as in the TFLite file. onnx: the layout of lowest cost.",
    )
    layout: InputField[str] = _option(
        LAYOUT, dict, "Layout of one input or output: one letter per axis in the file's order, then in the new order.",
        metavar="TENSOR=NHWC:NCHW", example="{'image': 'NHWC:NCHW'}",
        python="Layout of inputs and outputs by name: one letter per axis in the file's order, then in the new order.",
    )  # fmt: skip
    channels_first: bool = _option(
        LAYOUT, False,
        "Make every 4-D input and output channels first, except those given to --layout.",
    )  # fmt: skip
    layout_plan: Literal["least", "local"] = _option(
        LAYOUT,
        "least",
        "least: minimize the cost of Transposes. local: keep the layout of the TFLite file between operators.",
    )
    quantization: Literal["qdq", "float", "symmetric"] = _option(
        QUANTIZATION, "qdq",
        "qdq: keep the quantization, as QuantizeLinear and DequantizeLinear. float: use float32 throughout. symmetric: "
        "requantize 8-bit tensors to symmetric int8, which changes results.",
    )  # fmt: skip
    weights: Literal["keep", "fold"] = _option(
        QUANTIZATION, "keep", "Weights of weight-only quantization. keep: as in the file. fold: stored as float32."
    )
    weights_dtype: Literal["auto", "uint8", "int8", "keep"] = _option(
        QUANTIZATION, "auto",
        "Dtype of weights in 8-bit convolutions and matrix multiplications. auto: int8 or uint8, selected when the model loads; "
        "exact on every processor. uint8: exact on every processor, and no selection in the graph. int8: exact only on processors with "
        "32-bit accumulation (VNNI, ARM64). keep: the dtype of the file.",
    )  # fmt: skip
    attention: Literal["file", "causal"] = _option(
        ADVANCED, "file",
        "Attention of language models over a key-value cache. file: keep the operators of the file. causal: use one operator "
        "per layer (opset 24 for target generic); results are right only if you pass causal masks and consecutive positions.",
    )  # fmt: skip
    logits: Literal["all", "last"] = _option(
        ADVANCED, "all",
        "With --signature all: return logits for every token, or only for the last one (faster prompts).",
    )  # fmt: skip
    state: Literal["io", "reset"] = _option(
        ADVANCED, "io", "States. io: extra inputs and outputs. reset: every run begins with the initial values."
    )
    unroll: int = _option(
        ADVANCED, 0, "Unroll loops of at most N iterations; 0 keeps all loops.", metavar="N", minimum=0
    )
    check: Literal["auto", "full", "standard"] = _option(
        ADVANCED, "auto",
        "Open the model in ONNX Runtime before it is written. full: always. standard: never; only ONNX's checker runs. auto: "
        "only if the check is quick, or if the model is at risk of not loading.",
    )  # fmt: skip
    on_fusion_error: Literal["skip", "raise"] = _option(
        ADVANCED,
        "skip",
        "What to do if a conversion with fusions fails. skip: convert without fusions. raise: report the error.",
    )
    keep_unknown: bool = _option(
        ADVANCED, False,
        "Write unsupported operators as nodes of the domain tflite.custom, for a runtime that has kernels for them.",
    )  # fmt: skip
    prefer: Sequence[str] = _option(ADVANCED, (), "Op pack to prefer if several claim an operator.", metavar="PACK")
    block: Sequence[str] = _option(ADVANCED, (), "Op pack to skip.", metavar="PACK")
    packs: str | None = _option(
        ADVANCED, None, "Op packs to use: a comma-separated list, or builtin for no packs. Built-in operators are always used.",
        metavar="builtin|LIST",
        python="Op packs to use: a comma-separated list, or 'builtin' for no packs. Built-in operators are always used.",
    )  # fmt: skip

    @property
    def folds_constants(self) -> bool:
        """True if quantized constants are stored as floats in the ONNX model."""
        return self.weights == "fold" or self.quantization == "float"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.keep_unknown and self.verify:
            raise UnsupportedOption(
                "--keep-unknown and --verify: no installed runtime can run unknown operators, so the model "
                "cannot be compared; omit one of the options"
            )
        if self.logits == "last" and self.signature != ALL:
            raise UnsupportedOption(
                "--logits last: only a model of all signatures has scores of several tokens; add --signature all"
            )
        if self.layout_plan == "local" and self.io_layout == "onnx":
            raise UnsupportedOption(
                "--layout-plan local and --io-layout onnx: local keeps the source's layout everywhere, so --io-layout "
                "has no effect; omit one of the options"
            )


@dataclass(frozen=True, repr=False)
class BenchOptions(CheckedOptions):
    """Options of a benchmark, besides the model and its data."""

    threads: int = _option(COMMON, 1, "Threads of each runtime.", metavar="N", minimum=1, maximum=MAX_THREADS)
    rounds: int = _option(
        COMMON, 20, "Number of rounds; in each round both runtimes are timed for about 20 ms.", metavar="N", minimum=3,
        synonyms=("--repeat", "--repeats", "--iterations", "--num-runs"),
    )  # fmt: skip


class ConvertKeywords(TypedDict, total=False):
    """Fields of ConvertOptions as keyword arguments, for type checkers."""

    target: str
    opset: int | None
    optimize: Optimize
    signature: str | None
    verify: bool | VerifyOptions
    input_shape: ByInput[Shape] | None
    rename: ByInput[str] | None
    dynamic_batch: bool
    inputs_at: Sequence[str]
    outputs: Sequence[str]
    io_layout: Literal["source", "onnx"]
    layout: ByInput[str] | None
    channels_first: bool
    layout_plan: Literal["least", "local"]
    quantization: Literal["qdq", "float", "symmetric"]
    weights: Literal["keep", "fold"]
    weights_dtype: Literal["auto", "uint8", "int8", "keep"]
    attention: Literal["file", "causal"]
    logits: Literal["all", "last"]
    state: Literal["io", "reset"]
    unroll: int
    check: Literal["auto", "full", "standard"]
    on_fusion_error: Literal["skip", "raise"]
    keep_unknown: bool
    prefer: Sequence[str]
    block: Sequence[str]
    packs: str | None


@dataclass(frozen=True)
class Option:
    """A field of a dataclass of options.

    ``values``: the values of a flag whose value is optional, the default first. ``synonyms``: flags of similar tools
    with the same meaning. ``python``: help text for Python, if it differs. ``example``: an example of a value in
    Python.
    """

    name: str
    type: Any
    default: Any
    group: str
    help: str
    flag: str = ""
    metavar: str | None = None
    minimum: int | None = None
    maximum: int | None = None
    values: Sequence[str] = ()
    synonyms: Sequence[str] = ()
    python: str = ""
    example: str = ""

    @property
    def choices(self) -> tuple[str, ...]:
        return get_args(self.type) if get_origin(self.type) is Literal else ()

    @property
    def is_repeatable(self) -> bool:
        return get_origin(self.type) in (Mapping, Sequence)

    def check(self, value: object) -> None:
        """Raise TypeError or UnsupportedOption if the value is invalid."""
        rejection = f"{self.name} is {value!r}, so nothing was done"
        if not has_type(value, str if self.choices else self.type):
            key, wrong_value = find_mismatch(value, self.type)
            rejection = f"{self.name}{key} is {describe(wrong_value)}, so nothing was done"
            is_unnamed = self.name == "input_shape" and wrong_value is None
            name_hint = "; for a dynamic dimension give a name such as 'N'" if is_unnamed else ""
            is_single_text = get_origin(self.type) is Sequence and isinstance(value, str)
            example = f"[{value!r}]" if is_single_text else self.example
            raise TypeError(
                f"{rejection}; give {format_type(self.type)}{example and f', such as {example}'}{name_hint}"
            )
        if self.choices and value not in self.choices:
            raise UnsupportedOption(
                f"{rejection}; give {format_type(self.type)}{did_you_mean(str(value), self.choices)}"
            )
        if self.minimum is not None and isinstance(value, int | float) and not value >= self.minimum:
            raise UnsupportedOption(f"{rejection}; give {self.minimum} or more")
        if self.maximum is not None and isinstance(value, int | float) and not value <= self.maximum:
            raise UnsupportedOption(f"{rejection}; give {self.maximum} or less")


@cache
def options_of(cls: Any) -> tuple[Option, ...]:
    """Return the options of a dataclass, in the order of its fields."""
    hints = get_type_hints(cls)
    options = []
    for option_field in fields(cls):
        default = {} if option_field.default_factory is dict else option_field.default
        attributes = {"flag": flag(option_field.name), **option_field.metadata}
        options.append(Option(option_field.name, hints[option_field.name], default, **attributes))
    return tuple(options)


def flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def choices(name: str) -> tuple[str, ...]:
    """Return the choices of a conversion option."""
    return next(option.choices for option in options_of(ConvertOptions) if option.name == name)


def misplaced_keyword_remedies(function: str, known: Collection[str]) -> Mapping[str, str]:
    """Return remedies by keyword, except for the keywords ``known`` to ``function``."""
    verification = (
        "give it as convert(…, verify=VerifyOptions({}=…))"
        if function == "convert"
        else "VerifyOptions and verify take it"
    )
    remedies = {
        **{option.name: "convert and ConvertOptions take it" for option in options_of(ConvertOptions)},
        **{option.name: verification.format(option.name) for option in options_of(VerifyOptions)},
        **dict.fromkeys(("output", "output_path", "output_file", "path"), "convert(…).save(PATH) writes the file"),
    }
    return {name: remedy for name, remedy in remedies.items() if name not in known}


def merge(options: ConvertOptions | None, keywords: Mapping[str, Any]) -> ConvertOptions:
    """Return the options, updated by keywords. Raises TypeError or UnsupportedOption."""
    if not isinstance(options, ConvertOptions | None):
        hint = (
            "convert(…).save(PATH) writes the file"
            if isinstance(options, str | os.PathLike)
            else "give options as keywords"
        )
        raise TypeError(f"options is {describe(options)}, not a ConvertOptions; {hint}")
    known = {option.name: option for option in options_of(ConvertOptions)}
    check_keywords("convert", keywords, known, misplaced_keyword_remedies("convert", known))
    changes = {name: {} if value is None and known[name].default == {} else value for name, value in keywords.items()}
    return replace(options or ConvertOptions(), **changes)
