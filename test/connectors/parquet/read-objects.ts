import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";

export function readObjects(folder: string): ReadonlyMap<string, Uint8Array> {
  return new Map(
    readdirSync(folder, { recursive: true, withFileTypes: true })
      .filter((entry) => entry.isFile())
      .map((entry) => join(entry.parentPath, entry.name))
      .map((path) => [path.slice(folder.length + 1), readFileSync(path)]),
  );
}
