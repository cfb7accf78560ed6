"""``orbitmq mqadmin``: the commands of Apache RocketMQ's ``mqadmin``, with its names, options and output."""
