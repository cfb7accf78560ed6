"""Registration of the broker with name servers."""
