"""Remoting commands: frames, JSON and binary headers, fast decoders and encoders of frequent requests."""
