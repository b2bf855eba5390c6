"""PTX as data: instructions, functions, basic blocks, and the forms of instructions that are known."""
