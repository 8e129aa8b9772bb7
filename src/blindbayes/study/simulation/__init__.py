"""Studies in one process: the tasks of every party, at sites in memory."""
