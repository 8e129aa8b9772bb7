"""A codebook with every kind of feature."""

from __future__ import annotations

from blindbayes import Categorical, Codebook, Numeric
from blindbayes.codebook import IdPart, IdRecipe

FULL = Codebook(
    "outcome",
    ("no", "yes"),
    (
        Categorical("sex", ("f", "m"), labels={"f": "female"}, missing=("x",), description="as registered"),
        Numeric("age", 0, 120, optional=True, unit="years", missing=("-9",)),
        Numeric("hba1c", 3.0, 16.0, 0.1, bins=13),
        Categorical("größe ☃", ('qu"ote', "back\\slash", "semi;colon", "[bold]")),
    ),
    max_rows=10**6,
    missing=("?",),
    variance_floor=0.5,
    identifier=IdRecipe((IdPart("mail", "email"), IdPart("phone", "phone", "GB"))),
)
