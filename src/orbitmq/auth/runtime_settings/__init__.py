"""Settings that tools read and change while a server runs: which of them may change, and the requests for it."""
