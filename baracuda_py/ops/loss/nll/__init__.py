"""The negative log-likelihood of labels, of rows of log-probabilities."""
