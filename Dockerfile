# syntax=docker/dockerfile:1
# Plenum needs no build step: Node.js runs the TypeScript sources as they are.
# Pin both stages to a digest of a patched tag when you build for production.
FROM node:24-trixie-slim AS dependencies
WORKDIR /app
COPY package.json package-lock.json .npmrc ./
COPY tools/runtime/package.json tools/runtime/package.json
RUN npm ci --omit=dev --ignore-scripts --no-audit --no-fund

FROM node:24-trixie-slim
LABEL org.opencontainers.image.title="Plenum" \
      org.opencontainers.image.description="Building-automation monitoring to MQTT, InfluxDB, webhooks and files, and guarded tag writes back in"
# As in the start script `plenum`: compiled code is kept, freed memory is given back.
ENV NODE_ENV=production \
    NODE_COMPILE_CACHE=/app/.cache/plenum \
    MALLOC_ARENA_MAX=1 \
    MALLOC_TRIM_THRESHOLD_=131072
WORKDIR /app
COPY --from=dependencies /app/node_modules node_modules
# The licences of others have to stay with every copy.
COPY package.json THIRD-PARTY-NOTICES.md sbom.cdx.json ./
COPY src src
COPY connectors connectors
COPY config config
RUN node --input-type=module -e 'await import("./src/worker.ts")'
RUN mkdir -p /var/lib/plenum && chown 10001:10001 /var/lib/plenum && chmod 0700 /var/lib/plenum
USER 10001:10001
VOLUME /var/lib/plenum
EXPOSE 9850
HEALTHCHECK --interval=30s --timeout=5s --start-period=20s CMD ["node", "src/cli/main.ts", "status", "--probe", "--config", "/etc/plenum/plenum.yaml"]
# Not `npm start`: npm would swallow the SIGTERM that asks for a graceful stop.
CMD ["node", "--max-semi-space-size=2", "--heap-growing-percent=20", "src/cli/main.ts", "run", "--config", "/etc/plenum/plenum.yaml"]
