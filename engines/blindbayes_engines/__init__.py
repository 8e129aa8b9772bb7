"""Engines that carry the frames of blindbayes agents. Frames are sealed; what is here can delay and drop them, no more."""
