"""Users of the console: passwords, roles, sessions."""
