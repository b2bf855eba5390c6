"""Problems for projections to queries, keys and values."""
