"""Problems for copies and appends."""
