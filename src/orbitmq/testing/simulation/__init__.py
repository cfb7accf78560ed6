"""Stand-ins for the world: a virtual disk with power cuts and faults, and clocks."""
