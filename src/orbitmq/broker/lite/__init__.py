"""Lite topics: many small topics under one parent, each a light queue, and the clients that chose some of them."""
