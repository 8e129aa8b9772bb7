"""Building blocks of two-party protocols: transfers, garbled digits, look-ups."""
