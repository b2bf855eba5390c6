"""The pages of the ops, generated from the registry: ``docs/ops.md``, one page for each op, and the README's line of families."""

from .example import Example, example_of
from .index import ops_text, readme_row, sections
from .page import page_text, signature_text, split_parameters

__all__ = [
    "Example",
    "example_of",
    "ops_text",
    "page_text",
    "readme_row",
    "sections",
    "signature_text",
    "split_parameters",
]
