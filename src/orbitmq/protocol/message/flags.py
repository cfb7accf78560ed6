"""The bits of the flag fields: frames, messages, pulls, permissions, topics and groups."""

from __future__ import annotations

# The flag of a frame.
RESPONSE = 0x1
ONEWAY = 0x2

# The sysFlag of a message.
COMPRESSED = 0x1
MULTI_TAGS = 0x2
TRANSACTION_NONE = 0x0
TRANSACTION_PREPARED = 0x4
TRANSACTION_COMMIT = 0x8
TRANSACTION_ROLLBACK = 0xC
TRANSACTION_MASK = 0xC
BORN_HOST_V6 = 0x10
STORE_HOST_V6 = 0x20
NEED_UNWRAP = 0x40
INNER_BATCH = 0x80
COMPRESSION_MASK = 0x700
COMPRESSION_LEGACY_ZLIB = 0x000
"""No type is zlib: clients before 5.0 knew nothing else and set only COMPRESSED."""
COMPRESSION_LZ4 = 0x100
COMPRESSION_ZSTD = 0x200
COMPRESSION_ZLIB = 0x300

# The sysFlag of a pull.
PULL_COMMIT_OFFSET = 0x1
PULL_SUSPEND = 0x2
PULL_SUBSCRIPTION = 0x4
PULL_CLASS_FILTER = 0x8
PULL_LITE = 0x10

# The perm of a topic or a broker.
PERM_INHERIT = 0x1
PERM_WRITE = 0x2
PERM_READ = 0x4
PERM_PRIORITY = 0x8
PERM_READ_WRITE = PERM_READ | PERM_WRITE

# The topicSysFlag and the groupSysFlag.
TOPIC_UNIT = 0x1
TOPIC_UNIT_SUBSCRIBED = 0x2
GROUP_UNIT = 0x1

# The forbiddenType of a refused pull: an enumeration and not bits, kept beside the permissions it reports.
FORBIDDEN_BY_BROKER = 1
FORBIDDEN_BY_GROUP = 2
FORBIDDEN_BY_TOPIC = 3
FORBIDDEN_BROADCASTING = 4
FORBIDDEN_SUBSCRIPTION = 5


def perm_text(perm: int) -> str:
    """The three letters that the tools print for a perm: ``RW-``, ``R--``, ``RWX``."""
    return (
        ("R" if perm & PERM_READ else "-")
        + ("W" if perm & PERM_WRITE else "-")
        + ("X" if perm & PERM_INHERIT else "-")
    )
