"""The `farm` command: what a user asks of the farm from a shell. Nothing else imports click and rich."""
