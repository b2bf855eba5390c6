"""Matrix instructions: fragments, products of warps and of warpgroups."""
