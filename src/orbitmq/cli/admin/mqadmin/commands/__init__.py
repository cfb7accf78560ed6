"""The commands, one module per subject. Each function is one command, named as in ``specs``."""
