"""Figures of the last hour, day and week for the plots, in a file of fixed size."""
