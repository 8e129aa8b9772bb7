"""Huai et al. 2015: aggregation with distributed noise."""
