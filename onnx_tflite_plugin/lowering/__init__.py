"""Lower a bound model to ONNX: handlers emit nodes in planned layout and storage."""
