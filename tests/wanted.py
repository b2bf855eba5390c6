"""Samples beside the ops' own, chosen to reach what a kernel can do: rings of stages that wrap, every family of tiles, edges."""

from __future__ import annotations

from baracuda_py.samples import Sample

__all__ = ["WANTED"]

WANTED: dict[str, list[Sample]] = {}
