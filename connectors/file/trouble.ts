import type { Failure } from "../../src/core/errors/errors.ts";
import { folderFailure } from "../../src/core/errors/folder-problem.ts";

/** What a failed file operation means, as a sentence. */
export function meaning(error: unknown, folder: string): Failure {
  return folderFailure(error, folder, "Free some space, or lower max_total_mb");
}
