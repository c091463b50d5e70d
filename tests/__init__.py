"""Tests of onnx-tflite-plugin.

Test modules import helpers under one name, ``tests.<folder>.<module>``.
"""
