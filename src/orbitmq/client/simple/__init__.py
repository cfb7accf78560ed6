"""Simple consumer: pops messages and acknowledges each."""
