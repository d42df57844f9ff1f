# hkconv on its own:  docker build -t hkconv . && docker run --rm -v "$PWD:/work" hkconv train
# Add --build-arg PIP_EXTRA_INDEX_URL=... with the index of PyTorch's CPU builds for an image without CUDA packages.
FROM python:3.11-slim AS build
# Debian keeps one version of a package only, so that none can be named.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends g++ \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /source
COPY pyproject.toml hatch_build.py README.md LICENSE ./
COPY hkconv hkconv
RUN python -m pip wheel --no-cache-dir --no-deps --wheel-dir /wheels .

FROM python:3.11-slim
ARG PIP_EXTRA_INDEX_URL
COPY constraints.txt /tmp/
RUN --mount=from=build,source=/wheels,target=/wheels \
    python -m pip install --no-cache-dir -c /tmp/constraints.txt "hkconv[serve,viz] @ file://$(echo /wheels/hkconv-*.whl)" \
    && useradd --create-home --uid 1000 hkconv \
    && install --directory --owner 1000 /work
USER 1000
WORKDIR /work
ENTRYPOINT ["hkconv"]
CMD ["--help"]
