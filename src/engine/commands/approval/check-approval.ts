import { sortKeysDeeply } from "../audit/audit-log.ts";
import type { CommandsConfig, WriteApprovalConfig } from "../config.ts";
import type { WriteRefusal } from "../gate.ts";
import { isSignedBy } from "./signature.ts";

/** Rules of tag writing that approvers sign. New approvers also need signatures of the previous approvers. */
export type RuleSet = Readonly<Record<string, unknown>>;

export type Approvers = Pick<WriteApprovalConfig, "approvers" | "needed">;

export interface Approvals {
  /** Time of the approval in UTC; it is part of the signed text. */
  readonly at: string;
  readonly rules: RuleSet;
  readonly signatures: Readonly<Record<string, string>>;
}

export interface PinnedApprovers extends Approvers {
  readonly at: string;
  /** Path of the approvals file; needed to approve that `approval` is removed from the configuration. */
  readonly file: string;
}

export interface ApproverStore {
  read(): PinnedApprovers | null;
  write(pinned: PinnedApprovers | null): Promise<void> | void;
  /** Returns a text that changes when another process changes the approvers. */
  version(): string;
}

const MAX_CLOCK_LEAD_MS = 300_000;

export function collectWriteRules(config: CommandsConfig, otherRules: RuleSet): RuleSet {
  const { approval, allow, ...otherOptions } = config;
  const allowedTagEntries = allow.map(
    (allowedTag) => [`${allowedTag.source ?? ""}/${allowedTag.tag_id}`, allowedTag] as const,
  );
  return {
    ...otherRules,
    commands: { ...otherOptions, allow: Object.fromEntries(allowedTagEntries) },
    approval: approval === undefined ? null : { approvers: approval.approvers, needed: approval.needed },
  };
}

export function textToSign(rules: RuleSet, at: string): string {
  return JSON.stringify(["plenum approval 1", at, sortKeysDeeply(rules)]);
}

export function findSigners(text: string, { signatures }: Approvals, { approvers }: Approvers): readonly string[] {
  return Object.entries(approvers)
    .filter(([name, key]) => isSignedBy(text, signatures[name], key))
    .map(([name]) => name);
}

export function checkRuleApproval(input: {
  readonly rules: RuleSet;
  readonly approvals: Approvals | null;
  readonly configured: Approvers | null;
  readonly pinned: PinnedApprovers | null;
  readonly nowMs: number;
}): WriteRefusal | null {
  const { rules, approvals, configured, pinned, nowMs } = input;
  if (configured === null && pinned === null) return null;
  if (approvals === null) return buildRefusal("it is not approved yet");
  if (Date.parse(approvals.at) > nowMs + MAX_CLOCK_LEAD_MS) return buildRefusal("the approval lies in the future");
  if (pinned !== null && Date.parse(approvals.at) < Date.parse(pinned.at))
    return buildRefusal("it is older than the last approval");
  const signedText = textToSign(rules, approvals.at);
  for (const approverGroup of [configured, pinned]) {
    if (approverGroup === null) continue;
    const missingApprovals = approverGroup.needed - findSigners(signedText, approvals, approverGroup).length;
    if (missingApprovals <= 0) continue;
    const approverGroupText = approverGroup === configured ? "" : " of those who approved until now";
    return buildRefusal(
      `${missingApprovals} more${approverGroupText} must approve it: ${Object.keys(approverGroup.approvers).join(", ")}`,
    );
  }
  return null;
}

function buildRefusal(reason: string): WriteRefusal {
  const message = `What may be written is not approved as it stands: ${reason} (plenum writes approval).`;
  return { reason: "unapproved", message };
}

export function formatSettingLines(value: unknown, path = ""): readonly string[] {
  if (typeof value !== "object" || value === null) return [`${path} = ${JSON.stringify(value)}`];
  const settingEntries = Object.entries(value).filter(([, inner]) => inner !== undefined);
  if (settingEntries.length === 0 || Array.isArray(value)) return [`${path} = ${JSON.stringify(value)}`];
  return settingEntries
    .toSorted(([a], [b]) => (a < b ? -1 : 1))
    .flatMap(([key, inner]) => formatSettingLines(inner, path === "" ? key : `${path}.${key}`));
}
