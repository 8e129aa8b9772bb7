"""Zafarani and Clifton 2020: one table, smooth sensitivity."""
