import { resolve } from "node:path";
import type { ConnectorDefinition } from "../../src/connector.ts";
import type { Event } from "../../src/event.ts";
import { FileConfig } from "./config.ts";
import { folderOf } from "./layout.ts";
import { createFileSink } from "./sink.ts";

export const file = {
  name: "file",
  summary: "Events as JSON lines in a folder, on disk before they are acknowledged.",
  Config: FileConfig,
  carriesSequence: true,
  whereIs: searchFor,
  sink: createFileSink,
} satisfies ConnectorDefinition<FileConfig>;

/** `zgrep -hF '"subject":"site/1/tag/10042"' '/srv/events'/events-*`, which reads compressed files and others. */
function searchFor({ folder, name, path }: FileConfig, { subject, type, siteid }: Event): string {
  const below =
    path === undefined ? "" : `${folderOf(path, { kind: type, site: siteid ?? null, date: "*" })}/`;
  const line = `"subject":${JSON.stringify(subject)}`;
  return `zgrep -hF ${quoted(line)} ${quoted(resolve(folder))}/${below}${name}-*`;
}

/** One word of a shell. */
function quoted(text: string): string {
  return `'${text.replaceAll("'", "'\\''")}'`;
}
