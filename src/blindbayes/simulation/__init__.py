"""A study in one process: every party's role runs here, each message really encoded and decoded."""
