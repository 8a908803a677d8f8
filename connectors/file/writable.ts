import { access, constants, stat } from "node:fs/promises";
import { dirname } from "node:path";
import { ConfigError } from "../../src/core/errors/errors.ts";
import { danglingLink, linkProblem } from "../../src/core/errors/folder-problem.ts";

/** Checks the folder, or the nearest one above it that exists, without creating anything. */
export async function writable(folder: string): Promise<void> {
  const link = danglingLink(folder);
  if (link !== null) throw linkProblem(link);
  const found = await stat(folder).catch((error: NodeJS.ErrnoException) => {
    if (error.code === "ENOENT" && dirname(folder) !== folder) return null;
    throw error;
  });
  if (found === null) return writable(dirname(folder));
  if (!found.isDirectory()) throw new ConfigError(`${folder} is not a folder.`, { field: "folder" });
  await access(folder, constants.W_OK | constants.X_OK);
}
