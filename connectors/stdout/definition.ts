import { z } from "zod";
import type { ConnectorDefinition } from "../../src/core/connector.ts";
import { createStdoutSink } from "./sink.ts";

/** No options: one JSON line an event, to the standard output of the process. */
const StdoutConfig = z.strictObject({}).meta({ description: "Events as JSON lines on standard output." });
type StdoutConfig = z.infer<typeof StdoutConfig>;

export const stdout = {
  name: "stdout",
  summary: "Events as JSON lines on standard output, for pipes and for looking.",
  Config: StdoutConfig,
  carriesSequence: true,
  sink: () => createStdoutSink(process.stdout),
} satisfies ConnectorDefinition<StdoutConfig>;
