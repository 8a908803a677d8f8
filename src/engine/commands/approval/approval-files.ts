import { closeSync, fsyncSync, openSync, readFileSync, renameSync, rmSync, writeSync } from "node:fs";
import { join } from "node:path";
import { z } from "zod";
import { ConfigError } from "../../../core/errors/errors.ts";
import type { Approvals, PinnedApprovers } from "./check-approval.ts";

const PINNED_APPROVERS_FILE = "approvers.json";

const ApprovalTimeSchema = z.iso.datetime();
const ApprovalsFileSchema = z.strictObject({
  at: ApprovalTimeSchema,
  rules: z.record(z.string(), z.unknown()),
  signatures: z.record(z.string(), z.string()),
});
const PinnedApproversSchema = z.strictObject({
  approvers: z.record(z.string(), z.string()),
  needed: z.int().min(1),
  at: ApprovalTimeSchema,
  file: z.string(),
});

export function readApprovals(file: string): Approvals | null {
  return readJsonFile(file, ApprovalsFileSchema);
}

export function writeApprovals(file: string, approvals: Approvals): void {
  writeJsonFile(file, approvals, 0o644);
}

export function readApprovers(stateFolder: string): PinnedApprovers | null {
  return readJsonFile(join(stateFolder, PINNED_APPROVERS_FILE), PinnedApproversSchema);
}

export function writePinnedApprovers(stateFolder: string, pinned: PinnedApprovers | null): void {
  const pinnedApproversFile = join(stateFolder, PINNED_APPROVERS_FILE);
  if (pinned === null) rmSync(pinnedApproversFile, { force: true });
  else writeJsonFile(pinnedApproversFile, pinned, 0o600);
}

function readJsonFile<T>(file: string, schema: z.ZodType<T>): T | null {
  try {
    return schema.parse(JSON.parse(readFileSync(file, "utf8")));
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return null;
    throw new ConfigError(`${file} cannot be read, or is damaged.`, { cause: error });
  }
}

function writeJsonFile(file: string, content: unknown, mode: number): void {
  const temporaryFile = `${file}.new`;
  rmSync(temporaryFile, { force: true });
  const fileDescriptor = openSync(temporaryFile, "wx", mode);
  try {
    writeSync(fileDescriptor, `${JSON.stringify(content, null, 2)}\n`);
    fsyncSync(fileDescriptor);
  } finally {
    closeSync(fileDescriptor);
  }
  renameSync(temporaryFile, file);
}
