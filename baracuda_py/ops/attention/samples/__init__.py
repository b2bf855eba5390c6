"""Problems for the attention ops."""
