"""Simulated clusters: event loop, network, disks and clocks in memory, with faults from a seed."""
