"""A case: one small model, and the requirements on its conversion."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

from onnx_tflite_plugin.api import Kernel
from onnx_tflite_plugin.checked import check_keywords
from onnx_tflite_plugin.renamed import CASE, CASE_PROPERTIES, rename_fields, rename_keywords, warn_renamed
from onnx_tflite_plugin.source.model import Array
from onnx_tflite_plugin.verify import Tolerance as Tolerance  # packs import it from here

InputArrays = Mapping[str, Array] | Sequence[Mapping[str, Array]]
Reference = Callable[[Sequence[Array]], Sequence[Array]]

DEFAULT_OPSET = None  # the default of the target
EVERY_OPSET = (DEFAULT_OPSET, 13, 17, 21, 26)


@rename_fields(CASE, CASE_PROPERTIES)
@dataclass(frozen=True, eq=False)
class Case:
    """A small model, and the requirements on its conversion.

    The converted model is run and compared with LiteRT.

    ``op``: name of the entry point of the handler under test. ``build``: a function that returns the bytes of a .tflite
    file. ``dtype``: the support table counts the case in this column. All other fields have defaults.

    Inputs. ``input_arrays``: input name -> array. Pass one mapping for all runs, or a list with a mapping for each run.
    Inputs without an array are random; ``input_range``: minimum and maximum of random floats. ``runs``: number of runs in
    one session; states carry over between runs. ``dynamic_sizes``: sizes for further runs of models with dynamic
    dimensions. For size n, dynamic axis number k has size n + k. Leave it empty if LiteRT accepts only the default size.

    Conversions. The case is converted for each opset in ``opsets``, where None is the target's default, and for each of
    the ``targets``. ``options`` are passed to ``convert``.

    Expected outputs. ``kernel``: a NumPy function that computes the operator if LiteRT has no kernel for it; by default
    the kernel that the handler declares. LiteRT runs the rest of the model. ``reference``: a function that computes the
    outputs of the whole model from all its inputs; LiteRT is not used. ``tolerance`` replaces the default tolerance. Give
    the reason in ``tolerance_reason``. Built-in operators that must match exactly are listed in ``conformance.bounds``.

    Expected models. ``nodes``: ONNX operators, such as ``Conv`` or ``com.microsoft.Gelu``, that the model converted with
    the least-cost plan must contain. Pass a mapping to require their numbers. ``fusions``: names of fusions that must
    apply. ``max_transposes``: maximum number of Transpose nodes in the model converted with the least-cost plan. It is not
    checked if the plan adds Transposes for speed. ``renames``: name of a graph input or output in the file → name that it
    must have in the ONNX model.

    Expected errors. ``refusal``: a handler or the converter must refuse the model, and the message must contain this text.
    An exception in a pack's code does not count. ``kernel_refusal``: LiteRT must fail with this text, and the conversion is
    skipped. If ``refusal`` is given too, both LiteRT and the conversion must fail. ``known_failure``: the reason why the
    case is known to fail; a case that passes is reported.
    """

    op: str
    name: str
    build: Callable[[], bytes]
    dtype: str = "float32"
    input_arrays: InputArrays | None = None
    input_range: tuple[float, float] | None = None
    runs: int = 3
    dynamic_sizes: Sequence[int] = (2, 7)
    opsets: Sequence[int | None] = (None,)
    targets: Sequence[str] = ("onnxruntime", "generic")
    options: Mapping[str, Any] = field(default_factory=dict)
    kernel: Kernel | None = None
    reference: Reference | None = None
    nodes: Collection[str] | Mapping[str, int] = ()
    fusions: Collection[str] = ()
    refusal: str = ""
    kernel_refusal: str = ""
    known_failure: str = ""
    max_transposes: int | None = None
    renames: Mapping[str, str] = field(default_factory=dict)
    tolerance: Tolerance | None = None
    tolerance_reason: str = ""

    def __post_init__(self) -> None:
        if isinstance(self.nodes, str) or isinstance(self.fusions, str):
            raise TypeError(
                f"{self.id}: nodes and fusions must be collections of names; for a single name write ({self.nodes or self.fusions!r},)"
            )
        if self.tolerance is not None and not self.tolerance_reason:
            raise ValueError(f"{self.id}: tolerance= requires tolerance_reason=: say why the kernel's results differ")

    @property
    def id(self) -> str:
        return f"{self.op}-{self.name}".replace(" ", "_")

    @property
    def expects_success(self) -> bool:
        """True if the model must convert and agree with the reference.

        The support table counts only such cases.
        """
        return not (self.refusal or self.kernel_refusal or self.known_failure)


OPERATOR_KEYWORDS = ("options", "custom_options", "version")
"""Keywords that helpers for one operator accept in addition to the fields of a case."""


def check_case_keywords(name: str, keywords: Mapping[str, Any], extra_keywords: Collection[str] = ()) -> dict[str, Any]:
    """Return the keywords of a case, with old names replaced by current ones.

    ``extra_keywords``: valid keywords in addition to the fields of a case. Raises TypeError for any other keyword.
    """
    keywords = rename_keywords(f"the case {name!r}", keywords, CASE, stacklevel=_stacklevel_of_caller())
    for keyword in keywords:
        if get_close_matches(keyword, ["quantization", "quantized", "scale", "zero_point"], 1, 0.8):
            raise TypeError(
                f"the case {name!r} takes no keyword {keyword!r}; give scale and zero point to a tensor, as in "
                "tensor(2, 3, dtype='int8', scale=0.1, zero_point=5), and options of convert as options={'quantization': 'float'}"
            )
    check_keywords(f"the case {name!r}", keywords, [*Case.__dataclass_fields__, *extra_keywords])
    return keywords


def _stacklevel_of_caller() -> int:
    """Return the ``stacklevel`` of the first caller outside this package's helpers.

    A warning with this level points to the definition of the case.
    """
    frame, depth = sys._getframe(1), 3  # stacklevel 1 is warn_renamed, 2 rename_keywords, 3 check_case_keywords
    while frame.f_back is not None and frame.f_globals.get("__name__") in (__name__, "conformance.models"):
        frame, depth = frame.f_back, depth + 1
    return depth


def __getattr__(name: str) -> Any:
    """Return ``InputArrays`` by its old name, with a DeprecationWarning.

    Raises AttributeError for other names.
    """
    if name != "Given":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    warn_renamed(f"{__name__}.Given", "InputArrays")
    return InputArrays
