"""The REST interface under ``/api/v1``, and the guard in front of everything that the console serves."""
