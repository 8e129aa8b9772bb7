"""An exact sum of which only cells that reach a floor are opened. See SPEC.md."""
