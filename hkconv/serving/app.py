"""The paths of the server, what each takes and gives, and how errors become responses."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from html import escape
from typing import Any, TypeVar

from fastapi import FastAPI, Request, Security
from fastapi.openapi.utils import get_openapi
from fastapi.responses import HTMLResponse, PlainTextResponse, Response
from fastapi.security import HTTPBearer
from pydantic import TypeAdapter
from starlette.exceptions import HTTPException

from hkconv import __version__
from hkconv.errors import InputError
from hkconv.serving.gate import CONTENT_TYPE, HEALTH, METRICS, Gate, Metrics
from hkconv.serving.limits import Limits, Refusal, RefusalError
from hkconv.serving.messages import (
    Answer,
    Health,
    RunInfo,
    answer_of,
    graphs_question,
    info_of,
    new_nodes_question,
    nodes_question,
    parse,
)
from hkconv.serving.service import GraphService, NodeService
from hkconv.tasks.predict import Predictions

Result = TypeVar("Result")


class Worker:
    """Answers one question after the other, in the order in which they came.

    Args:
        max_seconds: that a question may wait and be answered in.
    """

    def __init__(self, max_seconds: float):
        self.max_seconds = max_seconds
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="predict")

    async def ask(self, question: Callable[[], Result]) -> Result:
        """The answer to a question.

        A question that is still waiting when its time is over is never asked; one that is being answered cannot be
        stopped, and its answer is dropped.
        """
        waiting = asyncio.wrap_future(self._thread.submit(question))
        try:
            return await asyncio.wait_for(waiting, self.max_seconds)
        except TimeoutError:
            raise RefusalError(
                504, f"no answer within {self.max_seconds:g} seconds: ask for less, or later when fewer do"
            ) from None

    def close(self) -> None:
        """Drop what still waits."""
        self._thread.shutdown(wait=False, cancel_futures=True)


RUN, SCHEMA, DOCS = "/run", "/openapi.json", ("/", "/docs")
JSON = "application/json"
BODY_REFUSALS = (400, 408, 413, 415, 422, 503)
REFUSALS = {
    400: "The body is not JSON.",
    401: "The token is missing or wrong.",
    404: "The graph has no such node.",
    408: "The body did not arrive in time.",
    413: "The body is too long, or has too many nodes or edges.",
    415: "The body is not said to be JSON.",
    422: "The body does not fit the run's data.",
    503: "Too many requests are being answered. The header Retry-After says in how many seconds to try again.",
    504: "There was no answer in time.",
}


@dataclass(frozen=True)
class Offer:
    """A kind of question that a run answers.

    Args:
        path: where it is asked.
        summary: what is answered.
        question: the type of the body.
        answer: called with the entries of a body.
        needs_model: whether the model is asked, and not what it said before.
    """

    path: str
    summary: str
    question: TypeAdapter
    answer: Callable[..., Predictions]
    needs_model: bool = True


def list_offers(service: NodeService | GraphService, limits: Limits) -> list[Offer]:
    """Kinds of questions that a run answers."""
    schema = service.schema
    if isinstance(service, GraphService):
        answer = partial(service.graphs, limits=limits)
        return [Offer("/predict/graphs", "Classes of graphs", graphs_question(schema, limits), answer)]
    offers = [Offer("/predict/nodes", "Classes of known nodes", nodes_question(limits), service.nodes, False)]
    if service.takes_new_nodes:
        summary, question = "Classes of new nodes", new_nodes_question(schema, limits)
        offers.append(Offer("/predict/new-nodes", summary, question, service.new_nodes))
    return offers


def create_app(service: NodeService | GraphService, limits: Limits, token: str | None = None) -> FastAPI:
    """The server of a run, as an ASGI application.

    Args:
        service: the run.
        limits: how much it takes on.
        token: that clients must show; None for no token.

    Returns:
        The application.
    """
    worker, metrics = Worker(limits.max_seconds), Metrics()

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        worker.close()

    # FastAPI's pages of documentation would fetch scripts from elsewhere; there is one of our own.
    app = FastAPI(openapi_url=SCHEMA, docs_url=None, redoc_url=None, redirect_slashes=False, lifespan=lifespan)
    offers = list_offers(service, limits)
    is_locked = token is not None
    for offer in offers:
        _add_offer(app, offer, worker, metrics, is_locked)
    _add_reports(app, service, metrics, is_locked)
    _add_error_handlers(app, [offer.path for offer in offers])
    document = _describe(app, service, offers)
    app.openapi = lambda: document  # type: ignore[method-assign]
    _add_page(app, _page(document), is_locked)
    paths = {RUN, SCHEMA, HEALTH, METRICS, *DOCS, *(offer.path for offer in offers)}
    app.add_middleware(Gate, limits=limits, token=token, metrics=metrics, paths=paths)
    return app


def _add_offer(app: FastAPI, offer: Offer, worker: Worker, metrics: Metrics, is_locked: bool) -> None:
    def find(body: bytes) -> Answer:
        return answer_of(offer.answer(**parse(offer.question, body)))

    # The body is read here and not by FastAPI, which would keep it in memory as objects, many times as large, while it
    # waits for the model.
    async def predict(request: Request) -> Answer:
        _check_content_type(request)
        body = await request.body()
        answer = await worker.ask(partial(find, body)) if offer.needs_model else find(body)
        metrics.predictions += len(answer["predictions"])
        return answer

    app.post(
        offer.path,
        summary=offer.summary,
        operation_id=offer.path.strip("/").replace("/", "-"),
        responses=_refusals(is_locked, *BODY_REFUSALS, 504 if offer.needs_model else 404),
        dependencies=_lock(is_locked),
    )(predict)


def _add_reports(app: FastAPI, service: NodeService | GraphService, metrics: Metrics, is_locked: bool) -> None:
    run = info_of(service)

    @app.get(HEALTH, summary="Whether the server lives; needs no token", operation_id="health")
    async def health() -> Health:
        return Health(status="ok")

    @app.get(
        METRICS,
        summary="Counters for Prometheus",
        operation_id="metrics",
        response_class=PlainTextResponse,
        responses=_refusals(is_locked),
        dependencies=_lock(is_locked),
    )
    async def count() -> Response:
        return Response(metrics.text(), media_type=CONTENT_TYPE)

    @app.get(
        RUN,
        summary="What answers",
        operation_id="run",
        responses=_refusals(is_locked, 503),
        dependencies=_lock(is_locked),
    )
    async def describe() -> RunInfo:
        return run


def _add_page(app: FastAPI, page: str, is_locked: bool) -> None:
    for path in DOCS:
        app.get(path, include_in_schema=False, dependencies=_lock(is_locked))(lambda: HTMLResponse(page))


def _page(document: dict[str, Any]) -> str:
    """The paths of a document of OpenAPI for people, as a page that fetches nothing."""
    rows = [
        f"<tr><td>{method.upper()}</td><td>{_linked(method, path)}</td><td>{escape(entry['summary'])}</td></tr>"
        for path, methods in document["paths"].items()
        for method, entry in methods.items()
    ]
    schemas = document["components"]["schemas"]
    title, about = (escape(document["info"][name]) for name in ("title", "description"))
    bodies = [
        f"<h2>POST {escape(path)}</h2><pre>{escape(json.dumps(_resolved(body, schemas), indent=2))}</pre>"
        for path, methods in document["paths"].items()
        if "post" in methods
        for body in [methods["post"]["requestBody"]["content"][JSON]["schema"]]
    ]
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{title}</title><h1>{title}</h1><p>{about}</p>'
        f"<table>{''.join(rows)}</table><p>Bodies are JSON, as below; {_linked('get', SCHEMA)} has every part of them "
        f"and of the answers.</p>{''.join(bodies)}</html>"
    )


def _resolved(part: Any, schemas: dict[str, Any]) -> Any:
    """A part of a schema with what it refers to in its place; none of ours refers to itself."""
    if isinstance(part, dict) and "$ref" in part:
        return _resolved(schemas[part["$ref"].rpartition("/")[2]], schemas)
    if isinstance(part, dict):
        return {key: _resolved(value, schemas) for key, value in part.items()}
    return [_resolved(value, schemas) for value in part] if isinstance(part, list) else part


def _linked(method: str, path: str) -> str:
    return f'<a href="{escape(path)}">{escape(path)}</a>' if method == "get" else escape(path)


def _add_error_handlers(app: FastAPI, paths: list[str]) -> None:
    offered = " and ".join(f"POST {path}" for path in paths)

    @app.exception_handler(RefusalError)
    async def tell(_: Request, refusal: RefusalError) -> Response:
        return refusal.response()

    @app.exception_handler(InputError)
    async def tell_input_error(_: Request, error: InputError) -> Response:
        return RefusalError(422, str(error)).response()

    @app.exception_handler(HTTPException)
    async def tell_http_error(_: Request, error: HTTPException) -> Response:
        message = error.detail
        if error.status_code == 404:
            message = f"there is no such path: this run answers {offered}, and {SCHEMA} has all"
        if error.status_code == 405:
            message = f"the path takes another method: {SCHEMA} has which"
        return RefusalError(error.status_code, message, error.headers).response()


def _check_content_type(request: Request) -> None:
    given = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if given != JSON:
        raise RefusalError(415, f"the header Content-Type must be {JSON}, got {given or 'none'}")


def _refusals(is_locked: bool, *statuses: int) -> dict[int | str, dict[str, Any]]:
    told = sorted({*statuses, *((401,) if is_locked else ())})
    return {status: {"model": Refusal, "description": REFUSALS[status]} for status in told}


def _lock(is_locked: bool) -> list[Any]:
    """For the schema alone: the gate looks at the token before anything else."""
    return [Security(HTTPBearer(auto_error=False))] if is_locked else []


def _describe(app: FastAPI, service: NodeService | GraphService, offers: list[Offer]) -> dict[str, Any]:
    """The OpenAPI document, with the bodies that FastAPI does not read."""
    result = service.predictor.choice.result
    document = get_openapi(
        title=f"hkconv: {service.schema.name}",
        version=__version__,
        description=f"Predictions of {result.cell}, a run on the {service.schema.task} task.",
        routes=app.routes,
    )
    schemas, shared = TypeAdapter.json_schemas(
        [(offer.path, "validation", offer.question) for offer in offers], ref_template="#/components/schemas/{model}"
    )
    for offer in offers:
        body = {"required": True, "content": {JSON: {"schema": schemas[offer.path, "validation"]}}}
        document["paths"][offer.path]["post"]["requestBody"] = body
    document["components"]["schemas"].update(shared["$defs"])
    return document
