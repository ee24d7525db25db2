"""Ahead of a run: what programs will ask for is written down, compiled before, and compared with what is stored."""
