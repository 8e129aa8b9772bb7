"""Oblivious transfer."""
