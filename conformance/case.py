"""A case: one small model, and the requirements on its conversion."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

from onnx_tflite_plugin.api import Kernel
from onnx_tflite_plugin.checked import check_keywords
from onnx_tflite_plugin.renamed import CASE, CASE_PROPERTIES, rename_keywords, renames_fields, warn_renamed
from onnx_tflite_plugin.source.model import Array
from onnx_tflite_plugin.verify import Tolerance as Tolerance  # packs take it from here

InputArrays = Mapping[str, Array] | Sequence[Mapping[str, Array]]
Reference = Callable[[Sequence[Array]], Sequence[Array]]

DEFAULT_OPSET = None  # the default of the target
EVERY_OPSET = (DEFAULT_OPSET, 13, 17, 21, 26)


@renames_fields(CASE, CASE_PROPERTIES)
@dataclass(frozen=True, eq=False)
class Case:
    """A small model under test, and the requirements on its conversion.

    The converted model is compared with LiteRT.

    ``op``: name of the entry point of the handler under test. ``build``: a function that returns the bytes of a .tflite
    file. ``dtype``: the column of the support table that counts the case. All other fields have defaults.

    Inputs. ``input_arrays``: arrays by input name for every run, or one mapping per run. Missing inputs are random;
    ``input_range``: minimum and maximum of random floats. ``runs``: runs of one session, which carries the states.
    ``dynamic_sizes``: sizes for further runs of models with dynamic dimensions. In a run with size n, a dynamic axis k
    has size n + k. Empty if LiteRT accepts no other sizes.

    Conversions. ``opsets``: ``None`` is the target's default. ``options``: further options of ``convert``.

    Expected outputs. ``kernel``: a NumPy kernel of the operator if LiteRT has none; by default the kernel that the
    handler declares. LiteRT runs the rest of the model. ``reference``: computes the outputs of the whole model instead,
    from all its inputs. ``tolerance`` replaces the default and requires ``tolerance_reason``: why the kernel's results
    differ. Built-in handlers list exact operators in ``conformance.bounds`` instead.

    Expected models. ``nodes``: ONNX operators that the model of the least-cost plan must have, such as ``Conv`` or
    ``com.microsoft.Gelu``, optionally with their number. ``fusions``: fusions that must apply. ``max_transposes``:
    maximum number of Transpose nodes of the least-cost plan; not checked if some are chosen for speed. ``renames``: the
    names that graph inputs and outputs must have in the ONNX model, by their names in the file.

    Expected errors. ``refusal``: the conversion must fail with this text. ``kernel_refusal``: LiteRT must fail with
    this text, so nothing is converted; together with ``refusal``, both must fail. ``known_failure``: the reason for a
    known failure; the case must fail.
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
            raise ValueError(f"{self.id}: tolerance= requires tolerance_reason=, why the kernel's results differ")

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
"""Keywords of the helpers for one operator, in addition to the fields of a case."""


def check_case_keywords(name: str, keywords: Mapping[str, Any], extra_keywords: Collection[str] = ()) -> dict[str, Any]:
    """Return the keywords of a case, with old names replaced by current ones.

    ``extra_keywords``: valid keywords in addition to the fields of a case. Raises TypeError for any other keyword.
    """
    keywords = rename_keywords(f"the case {name!r}", keywords, CASE, stacklevel=_depth_outside_the_kit())
    for keyword in keywords:
        if get_close_matches(keyword, ["quantization", "quantized", "scale", "zero_point"], 1, 0.8):
            raise TypeError(
                f"the case {name!r} takes no keyword {keyword!r}; give scale and zero point to a tensor, as in "
                "tensor(2, 3, dtype='int8', scale=0.1, zero_point=5), and options of convert as options={'quantization': 'float'}"
            )
    check_keywords(f"the case {name!r}", keywords, [*Case.__dataclass_fields__, *extra_keywords])
    return keywords


def _depth_outside_the_kit() -> int:
    """Return the ``stacklevel`` for a warning that points to the case's definition."""
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
