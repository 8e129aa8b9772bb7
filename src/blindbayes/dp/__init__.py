"""Differential privacy: exact samplers, mechanisms with their price, sensitivities, accounting, audit and statement."""
