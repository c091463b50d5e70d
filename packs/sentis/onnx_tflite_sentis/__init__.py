"""Target Unity Sentis (Inference Engine) for onnx-tflite-plugin."""
