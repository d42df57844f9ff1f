"""Predictions over HTTP: what a run says of its nodes, of new ones and of graphs that are posted.

Needs the extra ``serve`` (FastAPI and uvicorn), which nothing outside this room imports.
"""
