"""The generated files of the gRPC messages belong to their ``.proto`` files."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING

from google.protobuf import descriptor_pb2

from orbitmq.proxy.proto import definition_pb2, pool, service_pb2
from support.cli.documentation import ROOT

if TYPE_CHECKING:
    from types import ModuleType

FOLDER = Path(pool.__file__).parent


def _generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generate_grpc", ROOT / "scripts/generate_grpc.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_generated_files_are_up_to_date(tmp_path: Path) -> None:
    _generator().generate(tmp_path)
    made = tmp_path / "orbitmq/proxy/proto"
    for name in ("definition_pb2.pyi", "service_pb2.pyi"):
        assert (made / name).read_text("utf-8") == (FOLDER / name).read_text("utf-8"), name
    old, new = (
        descriptor_pb2.FileDescriptorSet.FromString((folder / "descriptors.binpb").read_bytes())
        for folder in (FOLDER, made)
    )
    assert old.file[-3:] == new.file[-3:]


def test_the_service_has_seventeen_calls_and_every_code() -> None:
    service = pool.POOL.FindServiceByName("apache.rocketmq.v2.MessagingService")
    assert len(service.methods) == 17
    assert len(definition_pb2.Code.keys()) == 54
    assert service_pb2.TelemetryCommand.DESCRIPTOR.fields_by_name["notify_unsubscribe_lite_command"].number == 9


def test_unknown_fields_are_tolerated() -> None:
    known = definition_pb2.Message(body=b"x").SerializeToString()
    assert definition_pb2.Message.FromString(known + b"\xfa\x06\x01y").body == b"x"
