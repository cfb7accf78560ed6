"""The lite pull consumer."""
