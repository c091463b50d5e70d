"""Host: installed packs, the handler of each operator, and the hooks of packs."""

from onnx_tflite_plugin.checked import describe
from onnx_tflite_plugin.guard import BUILTIN
from onnx_tflite_plugin.host.host import Host
from onnx_tflite_plugin.host.offers import FUSIONS, HANDLERS, Offer

__all__ = ["BUILTIN", "FUSIONS", "HANDLERS", "Host", "Offer", "check_host"]


def check_host(host: object) -> None:
    """Raise TypeError if ``host`` is neither a Host nor None."""
    if not isinstance(host, Host | None):
        raise TypeError(f"host is {describe(host)}; give an onnx_tflite_plugin.host.Host, or leave it out")
