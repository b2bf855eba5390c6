"""Elements under a mask: selected in order, replaced in order, and the gradients."""
