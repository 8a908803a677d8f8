import { statSync } from "node:fs";
import type { createDocuments } from "./documents.ts";
import { beginEpoch } from "./epoch.ts";
import type { Database } from "./sqlite.ts";

const SET = "state-file";
const KEY = "plenum.db";

/**
 * Has every sink count anew where the file is another one than at the last start: a backup that was put in its place
 * stands at numbers that the receivers have seen already, for other events. A file tells itself from its copies by its
 * number in the file system and its birth. A machine that was set back with its disk cannot be told so. Belongs inside a
 * transaction.
 */
export function noticeCopy(
  database: Database,
  documents: Pick<ReturnType<typeof createDocuments>, "document" | "change">,
): void {
  const { ino, birthtimeNs } = statSync(database.path, { bigint: true });
  const now = `${ino} ${birthtimeNs}`;
  const before = documents.document<string>(SET, KEY);
  if (before === now) return;
  if (before !== undefined) beginEpoch(database, "true");
  documents.change({ set: SET, put: [[KEY, now]] });
}
