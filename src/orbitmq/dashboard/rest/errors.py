"""Errors of the REST interface: a status, and a body with the kind of the error and a sentence."""

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel
from starlette.exceptions import HTTPException

from orbitmq.admin.errors import (
    AdminError,
    ClientOfflineError,
    InvalidRequestError,
    NotFoundError,
    PartialFailureError,
    RefusedError,
    UnreachableError,
    UnsupportedError,
)
from orbitmq.dashboard.auth.roles import ForbiddenError, NotSignedInError

STATUSES: tuple[tuple[type[AdminError], int, str], ...] = (
    (NotSignedInError, 401, "not_signed_in"),
    (ForbiddenError, 403, "forbidden"),
    (InvalidRequestError, 400, "invalid_request"),
    (NotFoundError, 404, "not_found"),
    (UnsupportedError, 501, "unsupported"),
    (ClientOfflineError, 409, "client_offline"),
    (RefusedError, 409, "refused"),
    (PartialFailureError, 502, "partial_failure"),
    (UnreachableError, 504, "unreachable"),
)


class ErrorView(BaseModel):
    """An error."""

    error: str
    message: str


def add_error_handlers(app: FastAPI) -> None:
    """Turn errors of administration and invalid arguments into responses."""

    @app.exception_handler(AdminError)
    async def failed(_: Request, error: AdminError) -> JSONResponse:
        status, name = next(
            ((status, name) for kind, status, name in STATUSES if isinstance(error, kind)), (500, "error")
        )
        return JSONResponse({"error": name, "message": str(error)}, status)

    @app.exception_handler(HTTPException)
    async def refused(_: Request, error: HTTPException) -> JSONResponse:
        name = "not_found" if error.status_code == 404 else "invalid_request"
        return JSONResponse({"error": name, "message": str(error.detail)}, error.status_code, error.headers)

    @app.exception_handler(RequestValidationError)
    async def invalid(_: Request, error: RequestValidationError) -> JSONResponse:
        parts = [f"{'.'.join(map(str, one['loc'][1:]))}: {one['msg']}" for one in error.errors()[:5]]
        return JSONResponse({"error": "invalid_request", "message": "; ".join(parts)}, 400)
