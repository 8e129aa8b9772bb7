"""Primitives of Vaidya's own protocols: oblivious transfer and polynomials under Paillier."""
