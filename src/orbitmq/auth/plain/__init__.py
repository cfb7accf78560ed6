"""RocketMQ's first access control, by the accounts of ``plain_acl.yml``."""
