"""Benchmarks of OrbitMQ's store and protocol: ``python -m bench``.

A scenario is a module with a ``run`` function that returns figures; ``catalog`` lists them. Figures compare within
one run on one machine only, so nothing here passes or fails: bars are reported as met or missed.
"""
