"""Results of a call: their allocation, their frameworks, and outputs that the device cuts to length."""
