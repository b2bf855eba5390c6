"""This library's kernels under unchanged torch code: `enable` for a block of code, `install` for the rest of the process."""

from __future__ import annotations

from .context import Enabled, enable
from .lasting import Installed, install
from .report import Report

__all__ = ["Enabled", "Installed", "Report", "enable", "install"]
