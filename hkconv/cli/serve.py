"""``hkconv serve``: answers questions to a run over HTTP."""

from typing import Annotated

import typer

from hkconv.cli.recipe_options import Device, ranged, run_argument
from hkconv.errors import InputError
from hkconv.options import COUNT, PORT, POSITIVE


def serve(
    run: Annotated[str, run_argument("Folder of a run on own data, as `hkconv train` prints it.")],
    data: Annotated[
        str | None,
        typer.Option(help="Graph of a node task; by default the one trained on.", show_default=False),
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="Ask this model; by default HKN, its best by validation.", show_default=False)
    ] = None,
    device: Device = "auto",
    host: Annotated[str, typer.Option(help="Address to listen on; 0.0.0.0 for all of this machine.")] = "127.0.0.1",
    port: Annotated[int, ranged(PORT, help="0 for any that is free.")] = 8000,
    token_file: Annotated[
        str | None,
        typer.Option(help="File with the token that clients must show; HKCONV_TOKEN is read too.", show_default=False),
    ] = None,
    max_bytes: Annotated[int, ranged(COUNT, help="Of the body of a request.")] = 1 << 20,
    max_nodes: Annotated[int, ranged(COUNT, help="In one request.")] = 1000,
    max_edges: Annotated[int, ranged(COUNT, help="In one request.")] = 10_000,
    max_seconds: Annotated[float, ranged(POSITIVE, help="For a body to arrive, and for its answer.")] = 30.0,
    max_requests: Annotated[int, ranged(COUNT, help="At a time; more are told to come back later.")] = 256,
) -> None:
    """Answer questions about own data over HTTP.

    Classes of nodes, of new nodes with their edges, of graphs. The schema is at
    /openapi.json. A token is not an option of its own, for other users of the
    machine could read it there.

    Example: hkconv serve runs/papers-20250101-120000 --port 8000
    """
    try:
        from hkconv.serving import server
        from hkconv.serving.app import create_app, list_offers
    except ImportError as error:
        raise InputError(f'serving needs FastAPI and uvicorn ({error}): pip install "hkconv[serve]"') from None
    from hkconv.serving.gate import find_token
    from hkconv.serving.limits import Limits
    from hkconv.serving.service import load_service

    limits = Limits(
        max_bytes=max_bytes,
        max_nodes=max_nodes,
        max_edges=max_edges,
        max_seconds=max_seconds,
        max_requests=max_requests,
    )
    token = find_token(token_file)
    listening = server.bind(host, port)
    service = load_service(run, data=data, model=model, device=device)
    app = create_app(service, limits, token)
    typer.echo(str(service.predictor.choice))
    typer.echo(f"answers: {', '.join(f'POST {offer.path}' for offer in list_offers(service, limits))}")
    if token is None and not server.is_loopback(listening):
        typer.echo("warning: without a token all who reach this address can ask: set HKCONV_TOKEN", err=True)
    typer.echo(f"listening on {server.address_of(listening)}, Ctrl-C ends")
    server.make_server(app, limits).run(sockets=[listening])
