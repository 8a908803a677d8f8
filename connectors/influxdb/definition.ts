import type { ConnectorDefinition } from "../../src/core/connector.ts";
import { buildExampleInfluxQuery, InfluxConfig } from "./config.ts";

export const influxdb = {
  name: "influxdb",
  summary: "Points in InfluxDB 1.x, 2, 3 or VictoriaMetrics.",
  Config: InfluxConfig,
  locateEvent: buildExampleInfluxQuery,
  sink: async (config, context) => (await import("./sink.ts")).createInfluxSink(config, context),
} satisfies ConnectorDefinition<InfluxConfig>;
