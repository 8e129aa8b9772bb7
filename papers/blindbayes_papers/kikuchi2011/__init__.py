"""Kikuchi et al. 2011: columns whose identifiers do not line up."""
