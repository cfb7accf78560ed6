"""The checks of an audit, one module each."""
