"""The multi-label margin loss: rows with a set of target classes each, and its gradient."""
