"""Host: installed packs, the handler of each operator, and the hooks of packs."""

from onnx_tflite_plugin.guard import BUILTIN
from onnx_tflite_plugin.host.host import Host, check_host
from onnx_tflite_plugin.host.offers import FUSIONS, HANDLERS, Offer

__all__ = ["BUILTIN", "FUSIONS", "HANDLERS", "Host", "Offer", "check_host"]
