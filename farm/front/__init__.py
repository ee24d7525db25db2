"""The process that calls: dispatcher, table, policy and installation."""
