import { isAbsolute, relative, sep } from "node:path";
import { z } from "zod";
import type { StoreSharedBySinks } from "../../src/core/connector.ts";
import { resolveFolderLinks } from "../../src/core/errors/folder-access.ts";
import { checkedText } from "../../src/core/values/checked-text.ts";
import { Duration } from "../../src/core/values/duration.ts";
import { findPathTemplateError } from "./folder-layout.ts";

const MAX_COMPRESSED_FILE_MB = 256;

export const FileConfig = z
  .strictObject({
    folder: z
      .string()
      .min(1)
      .refine((text) => !text.includes("\0"), "A folder name cannot hold a NUL character.")
      .meta({ description: "Folder of the files. Created if missing. Use a separate folder for each sink." }),
    name: z
      .string()
      .regex(/^[a-z0-9][a-z0-9_]{0,63}$/, "Use lower-case letters, digits and `_`, at most 64.")
      .default("events")
      .meta({ description: "First part of file names; two sinks in one folder need different names." }),
    path: checkedText(findPathTemplateError).optional().meta({
      description:
        "Folders below `folder` by kind, site and day (UTC) of the event, e.g. {kind}/{site}/{date} or date={date}/kind={kind}. Without it all lines are in files by the day of writing.",
    }),
    gzip: z.boolean().default(false).meta({ description: "Compress finished files." }),
    finish_after: Duration.refine((ms) => ms >= 1_000, "Use 1s or more.")
      .prefault("15m")
      .meta({
        description:
          "With `path`: a file is finished, and loses its ending .part, this long after its start, or before it exceeds max_file_mb.",
      }),
    max_file_mb: z.number().positive().max(4096).default(64).meta({
      description: "A new file starts before this size is exceeded, in MiB, and at midnight UTC.",
    }),
    keep_files: z.int().min(1).max(100_000).default(1_000).meta({
      description: "Maximum number of files of this sink; the oldest are deleted.",
    }),
    max_total_mb: z.number().positive().default(10_240).meta({
      description: "Maximum total size of the files of this sink in MiB; the oldest are deleted.",
    }),
    mode: z.enum(["0600", "0640"]).default("0640").meta({
      description: "File mode: for the owner only, or also readable by the group.",
    }),
  })
  .refine((config) => !config.gzip || config.max_file_mb <= MAX_COMPRESSED_FILE_MB, {
    path: ["max_file_mb"],
    message: `With gzip use at most ${MAX_COMPRESSED_FILE_MB}: events wait while a file is compressed.`,
  })
  .refine((config) => config.max_total_mb >= config.max_file_mb, {
    path: ["max_total_mb"],
    message: "max_total_mb has to be at least max_file_mb, or the newest file alone would be too large.",
  })
  .meta({
    description:
      "Events as JSON lines in a folder, in files by the day of writing, or by kind, site and day of the event.",
  });
export type FileConfig = z.infer<typeof FileConfig>;

export const mebibytesToBytes = (mebibytes: number): number => Math.round(mebibytes * 1024 ** 2);

/** Detects two sinks that write the same files: in one folder or, with `path`, in nested folders. */
export function findSharedFolder(firstConfig: FileConfig, otherConfig: FileConfig): StoreSharedBySinks | null {
  const hasDailyFiles = firstConfig.path === undefined;
  if (firstConfig.name !== otherConfig.name || hasDailyFiles !== (otherConfig.path === undefined)) return null;
  const [firstFolder, otherFolder] = [resolveFolderLinks(firstConfig.folder), resolveFolderLinks(otherConfig.folder)];
  const isFolderShared = hasDailyFiles
    ? firstFolder === otherFolder
    : isPathWithin(firstFolder, otherFolder) || isPathWithin(otherFolder, firstFolder);
  if (!isFolderShared) return null;
  return { path: ["folder"], consequence: "write the same files: give one of them another folder or another name" };
}

function isPathWithin(parentPath: string, path: string): boolean {
  const relativePath = relative(parentPath, path);
  return relativePath.split(sep)[0] !== ".." && !isAbsolute(relativePath);
}
