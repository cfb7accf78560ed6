"""Parts that all commands of operators share: options, contexts, output, times, formats, completion."""
