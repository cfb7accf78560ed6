"""The calls of MessagingService, a module per capability."""
