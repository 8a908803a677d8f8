import { isAbsolute, relative, resolve, sep } from "node:path";
import type { ConnectorDefinition, SharedStore } from "../../src/core/connector.ts";
import { realFolder } from "../../src/core/errors/folder-problem.ts";
import type { Event } from "../../src/core/model/event.ts";
import { FileConfig } from "./config.ts";
import { folderOf } from "./layout.ts";
import { createFileSink } from "./sink.ts";

export const file = {
  name: "file",
  summary: "Events as JSON lines in a folder, on disk before they are acknowledged.",
  Config: FileConfig,
  carriesSequence: true,
  whereIs: searchFor,
  shared: sameFiles,
  sink: createFileSink,
} satisfies ConnectorDefinition<FileConfig>;

/**
 * Two sinks conflict where they write the same files: same name, same layout and same folder. With `path`, one
 * folder inside the other conflicts too, because all subfolders are searched for unfinished files.
 */
function sameFiles(one: FileConfig, other: FileConfig): SharedStore | null {
  const isByDay = one.path === undefined;
  if (one.name !== other.name || isByDay !== (other.path === undefined)) return null;
  const [here, there] = [realFolder(one.folder), realFolder(other.folder)];
  const isShared = isByDay ? here === there : isWithin(here, there) || isWithin(there, here);
  if (!isShared) return null;
  return { path: ["folder"], would: "write the same files: give one of them another folder or another name" };
}

function isWithin(outer: string, path: string): boolean {
  const way = relative(outer, path);
  return way.split(sep)[0] !== ".." && !isAbsolute(way);
}

/** `zgrep -hF '"subject":"site/1/tag/10042"' '/srv/events'/events-*`, which reads compressed files and others. */
function searchFor({ folder, name, path }: FileConfig, { subject, type, siteid }: Event): string {
  const below = path === undefined ? "" : `${folderOf(path, { kind: type, site: siteid ?? null, date: "*" })}/`;
  const line = `"subject":${JSON.stringify(subject)}`;
  return `zgrep -hF ${quoted(line)} ${quoted(resolve(folder))}/${below}${name}-*`;
}

function quoted(text: string): string {
  return `'${text.replaceAll("'", "'\\''")}'`;
}
