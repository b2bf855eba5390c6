"""PyTorch sees every op as a custom op ``torch.ops.baracuda.<op>``, with fake tensors, gradients and vmap.

Importing this package defines them. Functions such as ``bp.matmul`` go there by themselves when torch must see the call: under
torch.compile, where a gradient is recorded, for fake tensors, and inside torch.func. Other calls never come here.
"""

from __future__ import annotations

from . import nn, optim
from .answers import call_op
from .enabling import Enabled, Installed, enable, install
from .library import define_all

__all__ = ["Enabled", "Installed", "call_op", "define_all", "enable", "install", "nn", "optim"]

define_all()
