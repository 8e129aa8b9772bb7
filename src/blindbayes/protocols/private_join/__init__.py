"""Training and classification over the hidden join of two ID lists."""
