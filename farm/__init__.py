"""Numba functions compile in worker processes while the program goes on."""
