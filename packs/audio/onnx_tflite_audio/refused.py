"""Operators that this pack does not convert, each with its reason."""

from __future__ import annotations

from onnx_tflite_plugin.api import Context, Decline, Handler, Refusal, Terminate, Value, handler

STATE = "its kernel keeps {} from call to call in memory of its own, which no tensor of the file stands for"
ASK = "cut the model behind it (--inputs-at), and compute the features in front of the network"


def refuse(name: str, reason: str) -> Handler:
    """Return a handler that declines every instance."""

    @handler(f"CUSTOM.Signal{name}", max_version=2**31 - 1, layout=Terminate(), accepts=Decline(reason, ASK))
    def refused(ctx: Context, *operands: Value) -> Value:
        """None."""
        raise Refusal(reason)

    return refused


delay = refuse("Delay", STATE.format("the samples that it holds back"))
framer = refuse("Framer", STATE.format("the samples of the frames that are not full"))
overlap_add = refuse("OverlapAdd", STATE.format("the tail of the last frame"))
spectral_subtraction = refuse("FilterBankSpectralSubtraction", STATE.format("its estimate of the noise"))
stacker = refuse("Stacker", STATE.format("the frames to the left"))
fft_auto_scale = refuse(
    "FftAutoScale", "its kernel's search for the greatest magnitude wraps at -32768 and starts anew behind it"
)
