"""The application: REST interface with its OpenAPI description, sign-in form and assets, behind the guard."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastapi import APIRouter, FastAPI

from orbitmq import __version__
from orbitmq.dashboard.rest import clusters, groups, live, management, messages, session, topics
from orbitmq.dashboard.rest.errors import ErrorView, add_error_handlers
from orbitmq.dashboard.sign_in import sign_in_routes

if TYPE_CHECKING:
    from orbitmq.dashboard.console import Console

PREFIX = "/api/v1"
DESCRIPTION = """
The console of OrbitMQ for programs. It administers OrbitMQ's and Apache RocketMQ's clusters.

Sign in with `POST /api/v1/session`; send the `token` of the response as `Authorization: Bearer …`. With the cookie
instead, changes need the header `X-CSRF-Token` with the session's `csrf`. Errors have a status and a body
`{"error": …, "message": …}`.
"""


def make_app(console: Console) -> FastAPI:
    """The application without pages. The caller starts and closes the console, and puts the guard around it."""
    app = FastAPI(
        title="OrbitMQ console",
        version=__version__,
        description=DESCRIPTION,
        # The pages of FastAPI load scripts from another host; the console has its own page of the interface.
        docs_url=None,
        redoc_url=None,
        openapi_url=f"{PREFIX}/openapi.json",
        responses={code: {"model": ErrorView} for code in (400, 401, 403, 404, 409, 502, 504)},
    )
    app.state.console = console
    api = APIRouter(prefix=PREFIX)
    for module in (session, clusters, topics, groups, messages, live, management):
        api.include_router(module.router)
    app.include_router(api)
    app.include_router(sign_in_routes(console))
    add_error_handlers(app)
    return app
