"""Threads of a wave: their lanes, their vector clocks, and the order between CTAs."""
