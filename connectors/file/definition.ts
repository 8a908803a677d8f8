import type { ConnectorDefinition } from "../../src/core/connector.ts";
import { FileConfig, findSharedFolder } from "./config.ts";
import { buildSearchCommand } from "./folder-layout.ts";

export const file = {
  name: "file",
  summary: "Events as JSON lines in a folder, on disk before they are acknowledged.",
  Config: FileConfig,
  carriesSequence: true,
  locateEvent: buildSearchCommand,
  findSharedStore: findSharedFolder,
  sink: async (config, context) => (await import("./sink.ts")).createFileSink(config, context),
} satisfies ConnectorDefinition<FileConfig>;
