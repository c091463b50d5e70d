"""Converted models on processors other than this one: ``python -m tests.qa.emulation``.

ONNX Runtime multiplies 8-bit integers with other kernels on each kind of processor, and some of them overflow.
Models from ``catalogue`` are converted and run in LiteRT here, then in ONNX Runtime on each of ``machines``, under
qemu-user; what comes out must be within the band that ``verify`` allows. Products at the ends of their dtypes
(``extremes``) are converted in a form that overflows as well, and must be seen to: else nothing is proven.

``python -m tests.qa.emulation --native avx2 -- COMMAND`` runs any command on this x86 processor as if it had no more than
AVX2 (``native``).
"""
