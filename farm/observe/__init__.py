"""What happened: events and statistics."""
