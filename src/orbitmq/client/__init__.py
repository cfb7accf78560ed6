"""Client: producers and consumers for OrbitMQ and Apache RocketMQ, built on asyncio.

What an application does with a cluster belongs here; operations belong to ``admin``, the transport to ``remoting``.
Nothing here imports a broker.
"""
