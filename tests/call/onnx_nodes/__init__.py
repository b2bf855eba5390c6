"""ONNX's node test cases, by the functions of this library that their op types map to."""
