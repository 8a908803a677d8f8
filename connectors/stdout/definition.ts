import type { ConnectorDefinition } from "../../src/core/connector.ts";
import { createStdoutSink, StdoutConfig } from "./sink.ts";

export const stdout = {
  name: "stdout",
  summary: "Events as JSON lines on standard output, for pipes and for looking.",
  Config: StdoutConfig,
  carriesSequence: true,
  sink: () => createStdoutSink(process.stdout),
} satisfies ConnectorDefinition<object>;
