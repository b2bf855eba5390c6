"""Values of registers: types, floating-point formats, and the opcodes that compute on lanes."""
