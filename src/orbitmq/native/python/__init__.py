"""Python twins of native functions and types: the specification, and the fallback without the extension."""
