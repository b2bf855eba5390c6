"""Order along an axis: the largest or smallest elements of each row."""
