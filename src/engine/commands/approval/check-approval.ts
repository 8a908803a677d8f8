import { sortKeys } from "../audit/audit-log.ts";
import type { ApprovalConfig, CommandsConfig } from "../config.ts";
import type { WriteRefusal } from "../gate.ts";
import { isSignedBy } from "./signature.ts";

/** Two-person rule: signed rules only. New or fewer approvers need the agreement of the last approval's approvers. */
export type RuleSet = Readonly<Record<string, unknown>>;

export type Approvers = Pick<ApprovalConfig, "approvers" | "needed">;

export interface Approvals {
  /** UTC; the same for all signatures, and part of what is signed. */
  readonly at: string;
  readonly rules: RuleSet;
  readonly signatures: Readonly<Record<string, string>>;
}

export interface PinnedApprovers extends Approvers {
  readonly at: string;
  /** Path of the approvals file, so that removing `approval` from the configuration needs an approval there. */
  readonly file: string;
}

export interface Pin {
  read(): PinnedApprovers | null;
  write(pinned: PinnedApprovers | null): Promise<void> | void;
  /** Returns another text after another process has written. */
  version(): string;
}

const MAX_CLOCK_LEAD_MS = 300_000;

export function approvedRules(config: CommandsConfig, around: RuleSet): RuleSet {
  const { approval, allow, ...rest } = config;
  const entries = allow.map((entry) => [`${entry.source ?? ""}/${entry.tag_id}`, entry] as const);
  return {
    ...around,
    commands: { ...rest, allow: Object.fromEntries(entries) },
    approval: approval === undefined ? null : { approvers: approval.approvers, needed: approval.needed },
  };
}

export function textToSign(rules: RuleSet, at: string): string {
  return JSON.stringify(["plenum approval 1", at, sortKeys(rules)]);
}

export function findSigners(text: string, { signatures }: Approvals, { approvers }: Approvers): readonly string[] {
  return Object.entries(approvers)
    .filter(([name, key]) => isSignedBy(text, signatures[name], key))
    .map(([name]) => name);
}

export function checkApproval(facts: {
  readonly rules: RuleSet;
  readonly approvals: Approvals | null;
  readonly configured: Approvers | null;
  readonly pinned: PinnedApprovers | null;
  readonly nowMs: number;
}): WriteRefusal | null {
  const { rules, approvals, configured, pinned, nowMs } = facts;
  if (configured === null && pinned === null) return null;
  if (approvals === null) return buildRefusal("nobody has approved it yet");
  if (Date.parse(approvals.at) > nowMs + MAX_CLOCK_LEAD_MS) return buildRefusal("the approval lies in the future");
  if (pinned !== null && Date.parse(approvals.at) < Date.parse(pinned.at))
    return buildRefusal("it is older than the last approval");
  const signedText = textToSign(rules, approvals.at);
  for (const group of [configured, pinned]) {
    if (group === null) continue;
    const missingApprovals = group.needed - findSigners(signedText, approvals, group).length;
    if (missingApprovals <= 0) continue;
    const who = group === configured ? "" : " of those who approved until now";
    return buildRefusal(`${missingApprovals} more${who} must approve it: ${Object.keys(group.approvers).join(", ")}`);
  }
  return null;
}

function buildRefusal(because: string): WriteRefusal {
  const message = `What may be written is not approved as it stands: ${because} (plenum writes approval).`;
  return { reason: "unapproved", message };
}

export function settingLines(value: unknown, path = ""): readonly string[] {
  if (typeof value !== "object" || value === null) return [`${path} = ${JSON.stringify(value)}`];
  const entries = Object.entries(value).filter(([, inner]) => inner !== undefined);
  if (entries.length === 0 || Array.isArray(value)) return [`${path} = ${JSON.stringify(value)}`];
  return entries
    .toSorted(([a], [b]) => (a < b ? -1 : 1))
    .flatMap(([key, inner]) => settingLines(inner, path === "" ? key : `${path}.${key}`));
}
