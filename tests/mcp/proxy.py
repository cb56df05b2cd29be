"""A way to a daemon for programs that cannot send its token: a proxy that adds it, and changes nothing else.

What names the proxy itself (`Host`, `Origin`) is made to name the daemon; anything else is handed on as it is, so that
what the daemon's door refuses is refused here too. It is a process of its own.
"""

import contextlib
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from urllib.parse import urlsplit

METHODS = ["GET", "POST", "DELETE", "PUT", "PATCH", "OPTIONS"]
OWN = {"connection", "content-length", "transfer-encoding", "keep-alive"}
ROOT = Path(__file__).parent.parent.parent


@contextlib.contextmanager
def proxy(address: str, token_file: str) -> Iterator[str]:
    """Stand before the daemon for the time of the block."""
    argv = [sys.executable, "-m", "tests.mcp.proxy", address, token_file]
    with subprocess.Popen(argv, cwd=ROOT, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True) as process:
        try:
            assert process.stdout is not None
            port = int(process.stdout.readline())
            yield f"http://127.0.0.1:{port}"
        finally:
            process.kill()


def main(address: str, token: str) -> None:
    """Be the proxy until somebody ends it."""
    import httpx2
    import uvicorn
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response, StreamingResponse
    from starlette.routing import Route

    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    there, here = urlsplit(address).netloc, (f"127.0.0.1:{port}", f"localhost:{port}")
    client = httpx2.AsyncClient(timeout=None, trust_env=False)

    async def hand_on(request: Request) -> Response:
        headers = [(name, value) for name, value in request.headers.items() if name not in OWN]
        headers = [(name, _renamed(value, here, there)) for name, value in headers if name != "authorization"]
        asked = client.build_request(
            request.method,
            f"http://{there}{request.url.path}?{request.url.query}",
            headers=[*headers, ("authorization", f"Bearer {token}")],
            content=await request.body(),
        )
        answer = await client.send(asked, stream=True)
        kept = {name: value for name, value in answer.headers.items() if name not in OWN}
        return StreamingResponse(body(answer), answer.status_code, kept)

    async def body(answer: httpx2.Response) -> AsyncIterator[bytes]:
        try:
            async for part in answer.aiter_raw():
                yield part
        finally:
            await answer.aclose()

    app = Starlette(routes=[Route("/{path:path}", hand_on, methods=METHODS)])
    print(port, flush=True)
    uvicorn.Server(uvicorn.Config(app, log_level="critical", lifespan="off")).run([listener])


def _renamed(value: str, here: tuple[str, ...], there: str) -> str:
    for name in here:
        if value in (name, f"http://{name}"):
            return value.replace(name, there)
    return value


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]).read_text().strip())
