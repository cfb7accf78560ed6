"""A provider of OpenID Connect for tests: it signs everybody in who comes, with the claims that it is told."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import http.server
import json
import threading
import time
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

if TYPE_CHECKING:
    from collections.abc import Iterator


class Provider:
    """The provider, and what it was sent."""

    def __init__(self) -> None:
        self.issuer = ""
        self.claims: dict[str, Any] = {}
        self.userinfo: dict[str, Any] = {}
        self.challenge = self.nonce = ""
        self.authorization = ""

    def sign_in(self, address: str) -> dict[str, str]:
        """The parameters with which the browser comes back from an address of the provider."""
        query = {name: values[0] for name, values in parse_qs(urlsplit(address).query).items()}
        assert query["response_type"] == "code"
        assert query["code_challenge_method"] == "S256"
        self.challenge, self.nonce = query["code_challenge"], query["nonce"]
        return {"state": query["state"], "code": "the-code"}

    def metadata(self) -> dict[str, Any]:
        ends = ("authorization", "token", "userinfo")
        return {"issuer": self.issuer, **{f"{name}_endpoint": f"{self.issuer}/{name}" for name in ends}}

    def tokens(self, form: dict[str, list[str]], authorization: str) -> dict[str, Any]:
        self.authorization = authorization
        digest = hashlib.sha256(form["code_verifier"][0].encode()).digest()
        if form["code"] != ["the-code"] or _text(digest) != self.challenge:
            return {"error": "invalid_grant"}
        claims = {
            "iss": self.issuer,
            "aud": "console",
            "sub": "1",
            "exp": time.time() + 60,
            "nonce": self.nonce,
            **self.claims,
        }
        return {"access_token": "a", "id_token": f"e30.{_text(json.dumps(claims).encode())}.sig"}


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


@contextlib.contextmanager
def oidc_provider() -> Iterator[Provider]:
    """A running provider on this machine."""
    provider = Provider()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer(provider.metadata() if "well-known" in self.path else provider.userinfo)

        def do_POST(self) -> None:
            form = parse_qs(self.rfile.read(int(self.headers["content-length"])).decode())
            self._answer(provider.tokens(form, self.headers.get("authorization", "")))

        def _answer(self, value: dict[str, Any]) -> None:
            body = json.dumps(value).encode()
            self.send_response(200)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        provider.issuer = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield provider
        finally:
            server.shutdown()
            thread.join()
