"""Old name of the pytest plugin, for ``-p conformance.plugin``.

Some environments installed the plugin under this name.
"""

from onnx_tflite_plugin.pytest_plugin import pytest_addoption as pytest_addoption
from onnx_tflite_plugin.pytest_plugin import pytest_collection_modifyitems as pytest_collection_modifyitems
