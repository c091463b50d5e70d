"""Op pack for onnx-tflite-plugin: MediaPipe's custom operators."""
