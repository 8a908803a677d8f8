import { ConfigError, Rejected } from "../../../core/errors/errors.ts";
import { isoUtc } from "../../../core/values/iso-utc.ts";
import type { ApprovalConfig } from "../config.ts";
import { readApprovals, writeApprovals } from "./approval-files.ts";
import { approvalsPath } from "./approval-guard.ts";
import {
  type Approvals,
  type Approvers,
  checkApproval,
  findSigners,
  type PinnedApprovers,
  type RuleSet,
  settingLines,
  textToSign,
} from "./check-approval.ts";
import { parsePrivateKey, publicKeyText, signText } from "./signature.ts";

export interface ApprovalInputs {
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

export function approvalState(question: ApprovalInputs): ApprovalState {
  const { config, nowMs, pinned, rules } = question;
  const file = approvalsFile(question);
  const approvals = readApprovals(file);
  const refusal = checkApproval({ rules, approvals, configured: config, pinned, nowMs });
  const groups = [config, pinned].filter((group) => group !== null);
  const signers =
    approvals === null ? [] : groups.flatMap((group) => findSigners(textToSign(rules, approvals.at), approvals, group));
  return {
    file,
    refusing: refusal?.message ?? null,
    approvedBy: [...new Set(signers)],
    changes: listRuleChanges(approvals, groups, rules),
  };
}

/** Signs the current rules, in addition to existing signatures of the same rules. */
export function signRules(question: ApprovalInputs, name: string, pem: string, keyFile: string): void {
  const { config, pinned, rules } = question;
  const key = parsePrivateKey(pem, keyFile);
  const approverKeys = [config?.approvers[name], pinned?.approvers[name]].filter((text) => text !== undefined);
  if (approverKeys.length === 0) throw new ConfigError(`${name} is not one of the approvers.`);
  if (!approverKeys.includes(publicKeyText(key))) throw new Rejected(`${keyFile} is not the key of ${name}.`);
  const file = approvalsFile(question);
  const signed = readApprovals(file);
  const isSame = signed !== null && textToSign(signed.rules, signed.at) === textToSign(rules, signed.at);
  const isNew = signed !== null && (pinned === null || Date.parse(signed.at) >= Date.parse(pinned.at));
  const approvalsToSign = isSame && isNew ? signed : { at: isoUtc(question.nowMs), rules, signatures: {} };
  const signature = signText(textToSign(rules, approvalsToSign.at), key);
  writeApprovals(file, { ...approvalsToSign, signatures: { ...approvalsToSign.signatures, [name]: signature } });
}

function approvalsFile({ config, pinned }: ApprovalInputs): string {
  const file = approvalsPath(config, pinned);
  if (file !== null) return file;
  throw new ConfigError("There is no two-person rule.", { hint: "Name approvers under commands.approval." });
}

function listRuleChanges(approvals: Approvals | null, groups: readonly Approvers[], rules: RuleSet): readonly string[] {
  const approvedText = approvals === null ? "" : textToSign(approvals.rules, approvals.at);
  const isValid =
    approvals !== null && groups.some((group) => findSigners(approvedText, approvals, group).length >= group.needed);
  const approvedLines = isValid ? settingLines(approvals.rules) : [];
  const currentLines = settingLines(rules);
  return [
    ...approvedLines.filter((line) => !currentLines.includes(line)).map((line) => `- ${line}`),
    ...currentLines.filter((line) => !approvedLines.includes(line)).map((line) => `+ ${line}`),
  ];
}
