# syntax=docker/dockerfile:1
# For production, pin all stages to the digest of a patched tag and pass the commit:
#   docker build --build-arg COMMIT="$(git rev-parse HEAD)" -t plenum .
# `npm run container:real` builds this file with buildah and tests the image.
FROM node:24-trixie-slim AS program
WORKDIR /app
COPY package.json package-lock.json .npmrc ./
COPY tools/runtime/package.json tools/runtime/package.json
RUN npm ci --ignore-scripts --no-audit --no-fund
COPY tools/bundle.ts tools/licences.ts tools/sbom.ts tools/shipped.ts tools/
COPY src src
COPY connectors connectors
RUN node tools/bundle.ts program && node tools/licences.ts && node tools/sbom.ts

FROM node:24-trixie-slim AS dependencies
WORKDIR /app
COPY package.json package-lock.json .npmrc ./
COPY tools/runtime/package.json tools/runtime/package.json
RUN npm ci --omit=dev --ignore-scripts --no-audit --no-fund
ARG COMMIT=
RUN if [ -n "$COMMIT" ]; then npm pkg set "gitHead=$COMMIT"; fi

FROM node:24-trixie-slim
ARG COMMIT=
LABEL org.opencontainers.image.title="Plenum" \
      org.opencontainers.image.revision=$COMMIT \
      org.opencontainers.image.description="Building-automation monitoring to MQTT, InfluxDB, webhooks and files, and guarded tag writes back in"
# Stores compiled code and returns freed memory to the system, like the start script `plenum`.
ENV NODE_ENV=production \
    NODE_COMPILE_CACHE=/app/.cache/plenum \
    MALLOC_ARENA_MAX=1 \
    MALLOC_TRIM_THRESHOLD_=131072
WORKDIR /app
COPY --from=dependencies /app/node_modules node_modules
COPY --from=dependencies /app/package.json ./
# Every copy must contain the licences of third parties.
COPY --from=program /app/THIRD-PARTY-NOTICES.md /app/sbom.cdx.json ./
COPY --from=program /app/program program
# Web pages and the readings of the demo are in the source folders.
COPY src src
COPY config config
# Compiles the program as user 10001, because Node.js stores compiled code per user. Then makes the folder read-only for
# that user.
RUN mkdir -p /var/lib/plenum /app/.cache/plenum \
 && chown 10001:10001 /var/lib/plenum /app/.cache/plenum && chmod 0700 /var/lib/plenum \
 && setpriv --reuid=10001 --regid=10001 --clear-groups node --input-type=module -e 'for (const name of (await import("node:fs")).readdirSync("program")) if (name !== "main.js") await import(`/app/program/${name}`)' \
 && chown -R 0:0 /app/.cache && chmod -R u=rwX,go=rX /app/.cache
USER 10001:10001
VOLUME /var/lib/plenum
EXPOSE 9850
HEALTHCHECK --interval=60s --timeout=5s --start-period=20s CMD ["node", "program/main.js", "status", "--probe", "--config", "/etc/plenum/plenum.yaml"]
# Runs node directly, because npm would not forward the SIGTERM for a graceful stop.
CMD ["node", "--min-semi-space-size=4", "--max-semi-space-size=4", "--heap-growing-percent=20", "--no-parallel-scavenge", "--no-allocation-site-pretenuring", "program/main.js", "run", "--config", "/etc/plenum/plenum.yaml"]
