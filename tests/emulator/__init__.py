"""The emulator: opcodes, memory, orders, what it refuses, and calls of users on it."""
