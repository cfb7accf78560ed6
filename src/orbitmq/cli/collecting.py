"""Python's garbage collector in a server: quiet while it loads, and done with what was loaded."""

import gc


def start_quietly() -> None:
    """Collect nothing until ``started``: what is loaded stays, and looking through it is a tenth of the start."""
    gc.disable()


def started() -> None:
    """Collect from now on, but only what was made since: looking through the rest would be a pause for all."""
    gc.freeze()
    gc.enable()
