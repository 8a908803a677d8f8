import type { ConnectorDefinition } from "../../src/connector.ts";
import { InfluxConfig } from "./config.ts";
import { influxQuestion } from "./question.ts";
import { createInfluxSink } from "./sink.ts";

export const influxdb = {
  name: "influxdb",
  summary: "Points in InfluxDB 1.x, 2, 3 or VictoriaMetrics.",
  Config: InfluxConfig,
  whereIs: influxQuestion,
  sink: createInfluxSink,
} satisfies ConnectorDefinition<InfluxConfig>;
