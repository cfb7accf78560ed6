"""How a fuzzed request is written: JSON in many spellings, binary headers, and frames with wrong lengths."""

from __future__ import annotations

import json
import struct
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    import random

Pairs: TypeAlias = list[tuple[str, str]]
"""Header fields in order; a name may come twice."""

Numbers: TypeAlias = tuple[int, int, int, int, int]
"""Code, opaque, flag, version and language."""

LANGUAGES = ("JAVA", "CPP", "GO", "PYTHON", "NODE_JS", "OTHER", "KLINGON", "", "java")


def text_bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def quoted(text: str) -> str:
    return json.dumps(text)


def json_header(numbers: Numbers, pairs: Pairs) -> bytes:
    """As RocketMQ's own clients write it."""
    code, opaque, flag, version, language = numbers
    fields = ",".join([f"{quoted(name)}:{quoted(value)}" for name, value in pairs])
    spoken = LANGUAGES[language % len(LANGUAGES)]
    return (
        f'{{"code":{code},"extFields":{{{fields}}},"flag":{flag},"language":"{spoken}",'
        f'"opaque":{opaque},"serializeTypeCurrentRPC":"JSON","version":{version}}}'
    ).encode()


def odd_json_header(random: random.Random, numbers: Numbers, pairs: Pairs) -> bytes:
    """A spelling that some parsers accept and others do not."""
    plain = json_header(numbers, pairs).decode()
    style = random.randrange(13)
    if style == 0:
        space = random.choice((" ", "\n", "\t", "\r\n", " " * 300))
        plain = plain.replace(",", "," + space).replace(":", space + ":").replace("{", "{" + space)
    elif style == 1:
        for name in ("code", "extFields", "flag", "language", "opaque", "version"):
            plain = plain.replace(f'"{name}"', name)
    elif style == 2:
        plain = plain.replace('"', "'")
    elif style == 3:
        plain = plain.replace("}", ",}")
    elif style == 4:
        depth = random.choice((1, 10, 100, 2000))
        plain = plain.replace('"extFields":{', '"extFields":{"nested":' + "[" * depth + "]" * depth + ",", 1)
    elif style == 5:
        plain = plain.replace('"extFields":{', '"extFields":{"n":1,"f":1.5e300,"t":true,"z":null,"o":{"a":[1]},', 1)
    elif style == 6:
        plain = plain.replace('"extFields":{', f'"extFields":{random.choice(("null", "[]", "1", "{"))},"x":{{', 1)
    elif style == 7:
        plain = plain.replace('"flag":', '"remark":"r\\u0000\\ud800","flag":', 1)
    elif style == 8:
        plain = plain.replace(f'"code":{numbers[0]}', f'"code":"{numbers[0]}","code":{numbers[0]}', 1)
    elif style == 9:
        plain = plain.replace('"version":', '"version":1e3,"v":', 1)
    elif style == 10:
        plain = "".join(f"\\u{ord(char):04x}" if random.random() < 0.02 else char for char in plain)
    elif style == 11:
        plain = plain[: random.randrange(len(plain))]
    else:
        plain = (
            random.choice(("\ufeff", "//c\n", " ", "[", "null", "")) + plain + random.choice(("", "}", " ", "\0"))
        )
    return plain.encode("utf-8", "surrogatepass")


def binary_header(numbers: Numbers, pairs: Pairs) -> bytes:
    """The numbers are cut to the width of their fields."""
    code, opaque, flag, version, language = numbers
    parts = []
    for name, value in pairs:
        key, data = text_bytes(name), text_bytes(value)
        parts.append(struct.pack(">H", len(key) & 0xFFFF) + key + struct.pack(">I", len(data)) + data)
    fields = b"".join(parts)
    fixed = struct.pack(
        ">HBHIIII",
        *(code & 0xFFFF, language & 0xFF, version & 0xFFFF, opaque & 0xFFFFFFFF, flag & 0xFFFFFFFF, 0, len(fields)),
    )
    return fixed + fields


def damaged_binary_header(random: random.Random, numbers: Numbers, pairs: Pairs) -> bytes:
    """A binary header with a wrong length, flipped bits or a missing end."""
    header = bytearray(binary_header(numbers, pairs))
    style = random.randrange(4)
    if style == 0:
        struct.pack_into(">i", header, 13, random.choice((1, -1, 2**31 - 1, -(2**31), len(header), 65536)))
    elif style == 1:
        struct.pack_into(">i", header, 17, random.choice((0, 1, -1, 2**31 - 1, len(header) - 20, len(header) - 22)))
    elif style == 2:
        for _ in range(random.randrange(1, 6)):
            header[random.randrange(len(header))] ^= 1 << random.randrange(8)
    else:
        del header[random.randrange(len(header)) :]
    return bytes(header)


def framed(kind: int, header: bytes, body: bytes) -> bytes:
    return struct.pack(">iI", 4 + len(header) + len(body), kind << 24 | len(header)) + header + body


def broken_frame(random: random.Random, frame: bytes) -> bytes:
    """Bytes after which the rest of the stream has no meaning."""
    style = random.randrange(8)
    if style == 0:
        length = random.choice((0, 1, 3, -1, -(2**31), 2**31 - 1, 16777213, 16777212, len(frame), len(frame) - 5))
        return struct.pack(">i", length) + frame[4:]
    if style == 1:
        return frame[:4] + bytes([random.choice((2, 3, 127, 128, 255))]) + frame[5:]
    if style == 2:
        length = random.choice((0, 1, 0xFFFFFF, len(frame) - 8, len(frame) - 7, len(frame)))
        return frame[:5] + (length & 0xFFFFFF).to_bytes(3, "big") + frame[8:]
    if style == 3:
        return frame[: random.randrange(len(frame))]
    if style == 4:
        return random.randbytes(random.choice((1, 3, 4, 7, 8, 9, 64, 4096)))
    if style == 5:
        greeting = random.choice(
            (b"PROXY TCP4 1.2.3.4 5.6.7.8 1 2\r\n", b"PROXY UNKNOWN\r\n", b"PROXY " + b"x" * 200)
        )
        return greeting + frame
    if style == 6:
        signature = b"\r\n\r\n\0\r\nQUIT\n"
        return signature + random.randbytes(random.randrange(40)) + frame
    return random.choice(
        (b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03", b"PRI * HTTP/2.0\r\n\r\n")
    )
