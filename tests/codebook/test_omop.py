"""Declared columns of an OMOP database: what a codebook refuses."""

from __future__ import annotations

from typing import Any

import pytest

from blindbayes.codebook.omop import OmopColumn
from blindbayes.errors import ConfigError


@pytest.mark.parametrize("wrong", ["half", [1.0], [float("nan"), 0.0], object()])
def test_a_conversion_of_another_type_is_a_typed_error_in_python(wrong: Any) -> None:
    with pytest.raises(ConfigError, match="factor and offset"):
        OmopColumn("x", "last", "measurement", (1,), days=(0, 1), unit=4, convert={"5": wrong})


def test_an_offset_of_zero_is_the_factor_alone() -> None:
    given = OmopColumn("x", "last", "measurement", (1,), days=(0, 1), unit=4, convert={"5": (0.5, 0.0), "6": (1, 2)})
    assert given.convert == {"5": 0.5, "6": (1.0, 2.0)}
