"""Lines and elements that are reduced by index, in a fixed order, and gradients of picking."""
