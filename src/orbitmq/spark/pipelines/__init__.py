"""Pipelines: Spark jobs over topics, stores and archives, each with a command and a function.

Here belongs what stands on the formats of ``orbitmq.spark`` and does an errand from beginning to end: archive,
replay, rebuild, audit, sql, migrate, and users' own declarative pipelines. How a job is started, told of and
interrupted is in ``running`` and ``progress``; the directory of an archive, which several of them read, in
``archive.directory``. What one DataFrame is made of belongs in the package above.
"""
