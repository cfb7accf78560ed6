"""Pipelines: Spark jobs over topics, stores and archives, each with a command and a function.

One package for each job: archive, replay, rebuild, audit, sql, migrate, and users' own declarative pipelines. Jobs
read and write through the formats of ``orbitmq.spark``. ``spark_job`` starts and stops the session of a job,
``interruptible`` handles Ctrl-C, ``progress`` reports; ``archive.directory`` is the archive format, which several
jobs read. Code that builds a single DataFrame belongs in the package above.
"""
