"""``python -m orbitmq`` is the ``orbitmq`` command."""

from orbitmq.cli import main

if __name__ == "__main__":
    main()
