"""The largest or smallest elements along an axis; ties go to the lower index."""
