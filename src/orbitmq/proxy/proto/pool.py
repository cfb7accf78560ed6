"""Descriptor pool of its own for the protocol's messages, and the loader of message classes.

The default pool of the process belongs to the application: an official RocketMQ client in the same process
registers the same names there, which protobuf refuses.
"""

from __future__ import annotations

import os
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.internal import enum_type_wrapper

FOLDER = "orbitmq/proxy/proto"
"""The folder that the ``.proto`` files have in each other's imports."""


def _pool() -> descriptor_pool.DescriptorPool:
    with open(os.path.join(os.path.dirname(__file__), "descriptors.binpb"), "rb") as stored:
        files = descriptor_pb2.FileDescriptorSet.FromString(stored.read())
    pool = descriptor_pool.DescriptorPool()
    for file in files.file:
        pool.Add(file)
    return pool


POOL = _pool()


def load(name: str) -> dict[str, Any]:
    """The message classes, enums and enum values of one ``.proto`` file, by name."""
    file = POOL.FindFileByName(f"{FOLDER}/{name}")
    found: dict[str, Any] = {
        message: message_factory.GetMessageClass(descriptor)
        for message, descriptor in file.message_types_by_name.items()
    }
    for enum, descriptor in file.enum_types_by_name.items():
        found[enum] = enum_type_wrapper.EnumTypeWrapper(descriptor)
        found.update((value.name, value.number) for value in descriptor.values)
    return found
