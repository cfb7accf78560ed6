"""The client: producers and consumers for OrbitMQ and Apache RocketMQ, asyncio inside.

Here belongs what an application does with a cluster. What an operator does belongs to ``admin``, how bytes travel
to ``remoting``. Nothing here knows a broker from the inside.
"""
