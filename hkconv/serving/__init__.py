"""Predictions over HTTP, for nodes of a run's graph, for new nodes and for posted graphs.

Needs the extra ``serve`` (FastAPI and uvicorn), which nothing outside this room imports.
"""
