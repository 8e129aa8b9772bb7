"""The model in other tools' formats: ONNX, PMML and SQL. They are made from the JSON model file."""

from blindbayes.naive_bayes.export.onnx import to_onnx
from blindbayes.naive_bayes.export.pmml import to_pmml
from blindbayes.naive_bayes.export.sql import to_sql

__all__ = ["to_onnx", "to_pmml", "to_sql"]
