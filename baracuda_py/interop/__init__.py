"""What other frameworks see of the ops: custom ops of PyTorch (`interop.torch`), made from the registry."""
