"""Records of a simulated run, for the checks at its end."""
