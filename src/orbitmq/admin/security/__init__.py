"""Users and rules of access."""
