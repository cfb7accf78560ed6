"""Access control: who sends a request, and whether that user may do what it asks for.

Signatures, users, policies and the decision are pure; ``guard`` puts them in front of the request handlers of
brokers and name servers. Not here: TLS, and the limits of connections, which are of ``remoting``.
"""
