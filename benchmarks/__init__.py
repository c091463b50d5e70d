"""Benchmark converted models against LiteRT: ``python -m benchmarks``.

Not part of the wheel.
"""
