"""TensorFlow's own operators in a TFLite file (select operators, lite/delegates/flex), one module per kind of
computation.

A row of a module is a handler. Most rows rewrite the operator to built-in operators (``rewriting``), so that layout,
quantization and fusions apply to it; the others lower it themselves.
"""
