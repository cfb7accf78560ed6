"""TLS on the remoting port: certificates, settings, transport."""
