"""Sends: admission, append, flush, response; retries and dead letters."""
