"""Functions of elements that are traced into one kernel: the graph of rows, its types, source, oracle and bound."""
