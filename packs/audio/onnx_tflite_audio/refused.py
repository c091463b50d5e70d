"""Operators that this pack does not convert, each with its reason."""

from __future__ import annotations

from onnx_tflite_plugin.api import Context, Decline, Handler, Refusal, Terminate, Value, handler

STATE = "the kernel keeps {} in its own memory, not in a tensor that the ONNX model could carry from run to run"
REMEDY = "cut the model after the operator with --inputs-at, and compute its result outside the model"


def refuse(name: str, reason: str) -> Handler:
    """Return a handler that declines every instance."""

    @handler(f"CUSTOM.Signal{name}", max_version=2**31 - 1, layout=Terminate(), accepts=Decline(reason, REMEDY))
    def lower(ctx: Context, *operands: Value) -> Value:
        """Raise Refusal."""
        raise Refusal(reason)

    return lower


delay = refuse("Delay", STATE.format("delayed samples"))
framer = refuse("Framer", STATE.format("the samples of incomplete frames"))
overlap_add = refuse("OverlapAdd", STATE.format("the tail of the last frame"))
spectral_subtraction = refuse("FilterBankSpectralSubtraction", STATE.format("the noise estimate"))
stacker = refuse("Stacker", STATE.format("previous frames"))
fft_auto_scale = refuse(
    "FftAutoScale",
    "the kernel's search for the largest magnitude overflows at -32768 and then ignores all earlier samples",
)
