"""Try to refute the privacy claim of a mechanism or an estimator."""
