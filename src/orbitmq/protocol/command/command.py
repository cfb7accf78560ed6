"""A remoting command: one request or response as an object, for everything that is not the hot path."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from orbitmq.protocol.codes import LanguageCode, SerializeType
from orbitmq.protocol.command.binary_header import decode_binary_header, encode_binary_header
from orbitmq.protocol.command.frame import FrameParser, encode_frame
from orbitmq.protocol.command.json_header import decode_json_header, encode_json_header
from orbitmq.protocol.message.flags import ONEWAY, RESPONSE
from orbitmq.protocol.versions import CURRENT_VERSION

if TYPE_CHECKING:
    from orbitmq.protocol.command.frame import Frame
    from orbitmq.protocol.command.header import Header


@dataclasses.dataclass(slots=True)
class Command:
    """One request or response.

    ``code`` is a request code, or a response code if the flag says RESPONSE. ``ext_fields`` are the header fields
    as text; ``fields`` turns them into typed values. No body and an empty one are the same on the wire and
    ``None`` here.
    """

    code: int
    opaque: int = 0
    flag: int = 0
    ext_fields: dict[str, str] = dataclasses.field(default_factory=dict)
    body: bytes | None = None
    remark: str | None = None
    language: LanguageCode = LanguageCode.JAVA
    version: int = CURRENT_VERSION
    serialize_type: SerializeType = SerializeType.JSON

    @property
    def is_response(self) -> bool:
        return bool(self.flag & RESPONSE)

    @property
    def is_oneway(self) -> bool:
        return bool(self.flag & ONEWAY)

    @classmethod
    def decode(cls, frame: Frame) -> Command:
        """Read a frame's header. Raises ProtocolError and nothing else."""
        serialize_type, header, _ = frame
        if serialize_type == SerializeType.JSON:
            return cls.of(frame, decode_json_header(header))
        return cls.of(frame, decode_binary_header(header))

    @classmethod
    def of(cls, frame: Frame, header: Header) -> Command:
        """The command of a frame whose header was decoded before."""
        code, opaque, flag, version, language, remark, ext_fields = header
        return cls(
            code=code,
            opaque=opaque,
            flag=flag,
            ext_fields=ext_fields,
            body=frame[2] or None,
            remark=remark,
            language=language,
            version=version,
            serialize_type=SerializeType(frame[0]),
        )

    @property
    def header(self) -> Header:
        """All but the body, in the form that decoders return."""
        return (
            self.code,
            self.opaque,
            self.flag,
            self.version,
            self.language,
            self.remark,
            self.ext_fields,
        )

    def encode(self) -> bytes:
        """The whole frame. Raises ProtocolError for what its kind of header cannot hold."""
        if self.serialize_type == SerializeType.JSON:
            header = encode_json_header(self.header)
        else:
            header = encode_binary_header(self.header)
        return encode_frame(self.serialize_type, header, self.body or b"")

    def response(
        self,
        code: int,
        *,
        ext_fields: dict[str, str] | None = None,
        body: bytes | None = None,
        remark: str | None = None,
    ) -> Command:
        """An answer to this request, written in the kind of header that the request used.

        Every client can read its own kind; the Node and C++ clients can read nothing but JSON.
        """
        return Command(
            code=code,
            opaque=self.opaque,
            flag=RESPONSE,
            ext_fields={} if ext_fields is None else ext_fields,
            body=body,
            remark=remark,
            serialize_type=self.serialize_type,
        )


def with_code(frames: bytes, code: int) -> bytes:
    """Whole frames, each with another code."""
    return b"".join(
        dataclasses.replace(Command.decode(frame), code=code).encode() for frame in FrameParser().feed(frames)
    )
