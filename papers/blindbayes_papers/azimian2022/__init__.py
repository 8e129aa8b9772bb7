"""Azimian et al. 2022: bit strings under Paillier along a chain."""
