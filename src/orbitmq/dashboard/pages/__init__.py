"""The pages, one file per entry of the navigation. They call ``subjects`` and ``orbitmq.admin``, and show."""
