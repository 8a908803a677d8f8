import { ConfigError, Rejected } from "../../../core/errors/errors.ts";
import { isoUtc } from "../../../core/values/iso-utc.ts";
import type { ApprovalConfig } from "../config.ts";
import {
  type Approvals,
  type Approvers,
  checkApproval,
  findSigners,
  type PinnedApprovers,
  type RuleSet,
  settingLines,
  textToSign,
} from "./approval.ts";
import { readApprovals, writeApprovals } from "./files.ts";
import { approvalsPath } from "./guard.ts";
import { parsePrivateKey, publicKeyText, signText } from "./signature.ts";

export interface ApprovalQuestion {
  readonly config: ApprovalConfig | null;
  readonly rules: RuleSet;
  readonly pinned: PinnedApprovers | null;
  readonly nowMs: number;
}

export interface ApprovalState {
  readonly file: string;
  readonly refusing: string | null;
  readonly approvedBy: readonly string[];
  readonly changes: readonly string[];
}

export function approvalState(question: ApprovalQuestion): ApprovalState {
  const { config, nowMs, pinned, rules } = question;
  const file = approvalsFile(question);
  const approvals = readApprovals(file);
  const refusing = checkApproval({ rules, approvals, configured: config, pinned, nowMs });
  const groups = [config, pinned].filter((group) => group !== null);
  const approvedBy =
    approvals === null ? [] : groups.flatMap((group) => findSigners(textToSign(rules, approvals.at), approvals, group));
  return {
    file,
    refusing: refusing?.message ?? null,
    approvedBy: [...new Set(approvedBy)],
    changes: changesSince(approvals, groups, rules),
  };
}

/** Signs the current rules, in addition to existing signatures of the same rules. */
export function signRules(question: ApprovalQuestion, name: string, pem: string, keyFile: string): void {
  const { config, pinned, rules } = question;
  const key = parsePrivateKey(pem, keyFile);
  const keys = [config?.approvers[name], pinned?.approvers[name]].filter((text) => text !== undefined);
  if (keys.length === 0) throw new ConfigError(`${name} is not one of the approvers.`);
  if (!keys.includes(publicKeyText(key))) throw new Rejected(`${keyFile} is not the key of ${name}.`);
  const file = approvalsFile(question);
  const before = readApprovals(file);
  const isSame = before !== null && textToSign(before.rules, before.at) === textToSign(rules, before.at);
  const isNew = before !== null && (pinned === null || Date.parse(before.at) >= Date.parse(pinned.at));
  const base = isSame && isNew ? before : { at: isoUtc(question.nowMs), rules, signatures: {} };
  const signature = signText(textToSign(rules, base.at), key);
  writeApprovals(file, { ...base, signatures: { ...base.signatures, [name]: signature } });
}

function approvalsFile({ config, pinned }: ApprovalQuestion): string {
  const file = approvalsPath(config, pinned);
  if (file !== null) return file;
  throw new ConfigError("There is no two-person rule.", { hint: "Name approvers under commands.approval." });
}

/** Lists every rule as new when the file has too few valid signatures. */
function changesSince(approvals: Approvals | null, groups: readonly Approvers[], rules: RuleSet): readonly string[] {
  const text = approvals === null ? "" : textToSign(approvals.rules, approvals.at);
  const isValid =
    approvals !== null && groups.some((group) => findSigners(text, approvals, group).length >= group.needed);
  const before = isValid ? settingLines(approvals.rules) : [];
  const now = settingLines(rules);
  return [
    ...before.filter((line) => !now.includes(line)).map((line) => `- ${line}`),
    ...now.filter((line) => !before.includes(line)).map((line) => `+ ${line}`),
  ];
}
