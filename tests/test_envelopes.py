"""Each endpoint's errors have the endpoint's own envelope, whatever part of the daemon detects them."""

from __future__ import annotations

import msgspec

from llmd.core.errors import ApiError
from llmd.http.context import ENVELOPES
from llmd.http.envelope import Envelope
from tests.conftest import Serve
from tests.serving import Json, chat

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"


class Other(msgspec.Struct):
    sorry: str


async def test_errors_of_an_endpoint_are_its_own(serve: Serve) -> None:
    daemon = await serve(body_limit=4096)

    def body_of(error: ApiError) -> bytes:
        return msgspec.json.encode(Other(error.code))

    daemon.app[ENVELOPES]["/chat/completions"] = Envelope(Other, body_of, body_of)
    asked: tuple[tuple[str, str, Json | bytes, str], ...] = (
        ("POST", CHAT, chat(temperature=-5), "invalid_value"),
        ("POST", "/chat/completions", b"{", "invalid_json"),
        ("POST", CHAT, chat("x" * 5000), "request_too_large"),
        ("GET", CHAT, b"", "method_not_allowed"),
        ("PUT", "/chat/completions", b"", "method_not_allowed"),
    )
    for method, path, body, code in asked:
        for address, key in ((path, "sorry"), (path.replace("chat/", ""), "error")):
            async with daemon.http.request(
                method, daemon.url + address, data=body if isinstance(body, bytes) else msgspec.json.encode(body)
            ) as response:
                answer = await response.json()
            assert set(answer) == {key}, (address, answer)
            if key == "sorry":
                assert answer["sorry"] == code and response.status == ApiError(code).status


async def test_what_is_nobodys_has_the_common_one(serve: Serve) -> None:
    daemon = await serve()
    for path in ("/v1/chat", "/v1/sessions/nobody", "/nothing", "/apis/tags", "//"):
        assert set((await daemon.ask("GET", path)).json) == {"error"}


async def test_what_is_nobodys_beside_endpoints_of_a_dialect_has_theirs(serve: Serve) -> None:
    daemon = await serve()
    for method, path in (("GET", "/api/nothing"), ("HEAD", "/api/blobs/sha256:0"), ("POST", "/api/blobs/sha256:0")):
        answer = await daemon.ask(method, path)
        assert answer.status == 404
        assert method == "HEAD" or (set(answer.json), answer.json["code"]) == ({"error", "code", "param"}, "not_found")
