"""The client instance that producers and consumers of one client id share."""
