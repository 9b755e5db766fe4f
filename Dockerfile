# One image for all services: `envwheel run SERVICE`. Sandboxes inside show this image's /usr (base = "host").
FROM python:3.11-slim-bookworm

RUN apt-get update \
    && apt-get install -y --no-install-recommends git procps diffutils gzip mawk \
    && rm -rf /var/lib/apt/lists/*

WORKDIR /opt/envwheel
# A folder `wheelhouse` beside this file, where there is one, is all that pip may use: for builds without a network.
COPY constraints.txt pyproject.toml README.md LICENSE wheelhous[e] ./wheelhouse/
RUN cd wheelhouse && mv constraints.txt pyproject.toml README.md LICENSE .. && cd .. \
    && if ls wheelhouse/*.whl >/dev/null 2>&1; then export PIP_NO_INDEX=1 PIP_FIND_LINKS=/opt/envwheel/wheelhouse; fi \
    && pip install --no-cache-dir "$(grep '^torch==' constraints.txt)" \
    && pip install --no-cache-dir -c constraints.txt hatchling editables
COPY schemas schemas
COPY services services
RUN if ls wheelhouse/*.whl >/dev/null 2>&1; then export PIP_NO_INDEX=1 PIP_FIND_LINKS=/opt/envwheel/wheelhouse; fi \
    && pip install --no-cache-dir --no-build-isolation -c constraints.txt ".[cpu]" \
    && rm -rf wheelhouse

# Services have uids of their own and one group; the store is writable for the group, each work folder for its owner.
RUN groupadd --gid 64100 envwheel \
    && install -d -m 2775 -g envwheel /artifacts \
    && install -d -m 1777 /work
ENV PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 OMP_NUM_THREADS=1 HOME=/work
WORKDIR /work
ENTRYPOINT ["envwheel"]
CMD ["--help"]
