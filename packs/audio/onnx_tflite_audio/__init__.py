"""Op pack: signal operators of TensorFlow Lite for Microcontrollers."""
