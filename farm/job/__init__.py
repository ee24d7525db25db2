"""What is sent: signatures, keys, functors and messages."""
