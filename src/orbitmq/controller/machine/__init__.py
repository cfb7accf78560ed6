"""The controller's state machine: broker groups, the events that change them, and the decisions on requests.

Pure: state and request in, decision out. Liveness and time are arguments; no file, socket, clock or lock is
used here, so that a local file, etcd and a simulator drive the same code.
"""
