import { z } from "zod";

const MEGABYTE = 1024 * 1024;

export const FileConfig = z
  .strictObject({
    folder: z
      .string()
      .min(1)
      .refine((text) => !text.includes("\0"), "A folder name cannot hold a NUL character.")
      .meta({
        description: "Where the files go. Created when missing. Use a folder that is the sink's own.",
      }),
    name: z
      .string()
      .regex(/^[a-z0-9][a-z0-9_]{0,63}$/, "Use lower-case letters, digits and `_`, at most 64.")
      .default("events")
      .meta({ description: "First part of every file name; two sinks in one folder need two names." }),
    max_file_mb: z
      .number()
      .positive()
      .max(4096)
      .default(64)
      .meta({ description: "A new file begins before this size is passed, in MiB, and at midnight UTC." }),
    keep_files: z
      .int()
      .min(1)
      .max(100_000)
      .default(1_000)
      .meta({ description: "The oldest of our own files are removed beyond this number." }),
    max_total_mb: z.number().positive().default(10_240).meta({
      description: "The oldest of our own files are removed before all of them pass this size, in MiB.",
    }),
    mode: z
      .enum(["0600", "0640"])
      .default("0640")
      .meta({ description: "Permission of the files: the owner only, or readable by the group as well." }),
  })
  .refine((config) => config.max_total_mb >= config.max_file_mb, {
    path: ["max_total_mb"],
    message: "max_total_mb has to be at least max_file_mb, or the newest file alone would be too large.",
  })
  .meta({ description: "Events as JSON lines in a folder, rotated by size and day." });
export type FileConfig = z.infer<typeof FileConfig>;

export function bytesOf(mebibytes: number): number {
  return Math.round(mebibytes * MEGABYTE);
}
