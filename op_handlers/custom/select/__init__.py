"""TensorFlow's own operators in a TFLite file (select operators, lite/delegates/flex), by the kind of what they compute.

A row of a module is a handler. Most rows rewrite the operator to built-in ones (``twins``), so that layout, quantization and
fusions treat it as these; the others lower it themselves.
"""
