"""Folders that onnxruntime-genai runs, from LiteRT bundles of language models."""
