"""The fast path: frames that the native extension serves, and what the broker records of its results.

``dispatcher`` sees received bytes first and hands the frames it recognises to an adapter (``send``, ``ack``,
``pull``). An adapter calls the native code once for a whole batch. Frames that the native code declines fall back
to the request handlers of the Python path. ``delivery`` and ``timer`` do the same for deferred messages that are
due.
"""
