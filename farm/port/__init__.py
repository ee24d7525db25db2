"""The only package that touches numba's private parts."""
