"""Fixtures of tests of targets."""

from __future__ import annotations

import pytest

from onnx_tflite_plugin.host import Host


@pytest.fixture(scope="module")
def host() -> Host:
    """Return a host of the built-in pack only."""
    return Host(packs="builtin")
