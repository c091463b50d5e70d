"""Converted models on other processors: ``python -m tests.qa.emulation``.

ONNX Runtime multiplies 8-bit integers with different kernels on each kind of processor, and some kernels overflow.
Models from ``catalogue`` are converted and run in LiteRT here, then in ONNX Runtime on each of ``machines``, under
qemu-user. The results must be within the tolerance of ``verify``. Products at the ends of their dtypes (``extremes``) are
also converted in a form that overflows, and this overflow must be detected; otherwise the trial proves nothing.

``python -m tests.qa.emulation --native avx2 -- COMMAND`` runs any command on this x86 processor with all features beyond AVX2
hidden (``native``).
"""
