import { closeSync, fsyncSync, openSync, readFileSync, renameSync, rmSync, writeSync } from "node:fs";
import { join } from "node:path";
import { z } from "zod";
import { ConfigError } from "../../../core/errors/errors.ts";
import type { Approvals, PinnedApprovers } from "./check-approval.ts";

const PIN_FILE = "approvers.json";

const ApprovalTime = z.iso.datetime();
const ApprovalsFile = z.strictObject({
  at: ApprovalTime,
  rules: z.record(z.string(), z.unknown()),
  signatures: z.record(z.string(), z.string()),
});
const PinFile = z.strictObject({
  approvers: z.record(z.string(), z.string()),
  needed: z.int().min(1),
  at: ApprovalTime,
  file: z.string(),
});

export function readApprovals(file: string): Approvals | null {
  return readJsonFile(file, ApprovalsFile);
}

export function writeApprovals(file: string, approvals: Approvals): void {
  writeJsonFile(file, approvals, 0o644);
}

export function readPin(stateFolder: string): PinnedApprovers | null {
  return readJsonFile(join(stateFolder, PIN_FILE), PinFile);
}

export function writePin(stateFolder: string, pinned: PinnedApprovers | null): void {
  const file = join(stateFolder, PIN_FILE);
  if (pinned === null) rmSync(file, { force: true });
  else writeJsonFile(file, pinned, 0o600);
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
  const descriptor = openSync(temporaryFile, "wx", mode);
  try {
    writeSync(descriptor, `${JSON.stringify(content, null, 2)}\n`);
    fsyncSync(descriptor);
  } finally {
    closeSync(descriptor);
  }
  renameSync(temporaryFile, file);
}
