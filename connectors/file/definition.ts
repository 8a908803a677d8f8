import type { ConnectorDefinition } from "../../src/connector.ts";
import { FileConfig } from "./config.ts";
import { createFileSink } from "./sink.ts";

export const file = {
  name: "file",
  summary: "Events as JSON lines in a folder, on disk before they are acknowledged.",
  Config: FileConfig,
  carriesSequence: true,
  sink: createFileSink,
} satisfies ConnectorDefinition<FileConfig>;
