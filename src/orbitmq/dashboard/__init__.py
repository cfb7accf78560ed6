"""The web console: pages and a REST interface over ``orbitmq.admin``, for several clusters, with users and roles.

Here: sign-in, sessions, the audit log, short caches, and the history behind the plots. Not here: any request to a
server, which is ``orbitmq.admin``'s.
"""
