"""What only Vaidya's own protocols need: oblivious transfer and polynomials under Paillier."""
