"""Whether ONNX Runtime opens a finished model: its kernels are fewer than ONNX's dtypes, and nothing but itself lists them."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from onnx_tflite_plugin.errors import Problem, TargetRefusal
from onnx_tflite_plugin.graph.kernels import advice

if TYPE_CHECKING:
    import onnx
    import onnx_ir as ir

CHEAP = 1 << 20
"""Bytes of a model that is opened unless it is forbidden: it takes some milliseconds, and 0.1 s once for ONNX Runtime."""
DOMAINS = frozenset({"", "ai.onnx", "ai.onnx.ml", "com.microsoft"})
"""Those of the operators that ONNX Runtime has; nodes of others need a library that is loaded into the session."""
COMMON = frozenset({"FLOAT", "UINT8", "INT8", "INT32", "INT64", "BOOL"})
"""Dtypes that practically every kernel takes; a larger model is opened only where it computes with others."""


def check_opens(model: ir.Model, proto: onnx.ModelProto, asked: str, opsets: tuple[int, int]) -> None:
    """Raises TargetRefusal with ONNX Runtime's reason. ``asked``: full, standard, or auto: where it is cheap or in doubt.

    ``proto`` is the model as protobuf. One with operators of other domains is opened only if that is asked for. ``opsets``: the
    oldest and the newest that might help.
    """
    if asked == "standard" or (asked == "auto" and not _worthwhile(model, proto)) or find_spec("onnxruntime") is None:
        return
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    try:
        onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # the package's own types share no other base
        reason = " ".join(str(error).split()).replace("[ONNXRuntimeError] : ", "")
        raise TargetRefusal(
            f"ONNX Runtime {onnxruntime.__version__} does not open what was converted:",
            [Problem("the ONNX model", reason, advice(model, reason, opsets))],
        ) from error


def foreign_domains(model: ir.Model) -> tuple[str, ...]:
    """Those of the operators that neither ONNX Runtime nor the model's own functions compute, sorted."""
    own = {domain for domain, _, _ in model.functions}
    return tuple(sorted({node.domain for node in model.graph.all_nodes()} - DOMAINS - own))


def _worthwhile(model: ir.Model, proto: onnx.ModelProto) -> bool:
    """Whether opening the model is cheap or its dtypes are in doubt, and no library of kernels is wanted."""
    if foreign_domains(model):
        return False
    return proto.ByteSize() <= CHEAP or _unusual(model)


def _unusual(model: ir.Model) -> bool:
    """Whether anything is computed in a dtype that only some kernels take."""
    values = (*model.graph.inputs, *(value for node in model.graph.all_nodes() for value in node.outputs))
    return any(value.type is not None and value.type.dtype.name not in COMMON for value in values)
