"""Files that must survive a crash: written whole, synced, private to their owner."""
