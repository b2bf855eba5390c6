"""Connectionist temporal classification: sequences and shorter ones of labels, without their alignment."""
