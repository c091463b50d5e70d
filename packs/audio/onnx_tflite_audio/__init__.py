"""Op pack for onnx-tflite-plugin: signal operators of TensorFlow Lite for Microcontrollers."""
