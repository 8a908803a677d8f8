import { ConfigError, Rejected } from "../../../core/errors/errors.ts";
import { isoUtc } from "../../../core/values/iso-utc.ts";
import type { WriteApprovalConfig } from "../config.ts";
import { readApprovals, writeApprovals } from "./approval-files.ts";
import { approvalsFilePath } from "./approval-guard.ts";
import {
  type Approvals,
  type Approvers,
  checkRuleApproval,
  findSigners,
  formatSettingLines,
  type PinnedApprovers,
  type RuleSet,
  textToSign,
} from "./check-approval.ts";
import { derivePublicKeyText, parsePrivateKey, signText } from "./signature.ts";

export interface WriteApprovalInputs {
  readonly config: WriteApprovalConfig | null;
  readonly rules: RuleSet;
  readonly pinned: PinnedApprovers | null;
  readonly nowMs: number;
}

export function readApprovalState(inputs: WriteApprovalInputs) {
  const { config, nowMs, pinned, rules } = inputs;
  const file = requireApprovalsFile(inputs);
  const approvals = readApprovals(file);
  const refusal = checkRuleApproval({ rules, approvals, configured: config, pinned, nowMs });
  const groups = [config, pinned].filter((group) => group !== null);
  const approvalSigners =
    approvals === null ? [] : groups.flatMap((group) => findSigners(textToSign(rules, approvals.at), approvals, group));
  return {
    file,
    refusing: refusal?.message ?? null,
    approvedBy: [...new Set(approvalSigners)],
    changes: listRuleChanges(approvals, groups, rules),
  };
}

export function signWriteRules(inputs: WriteApprovalInputs, name: string, pem: string, keyFile: string): void {
  const { config, pinned, rules } = inputs;
  const key = parsePrivateKey(pem, keyFile);
  const approverKeys = [config?.approvers[name], pinned?.approvers[name]].filter((text) => text !== undefined);
  if (approverKeys.length === 0) throw new ConfigError(`${name} is not one of the approvers.`);
  if (!approverKeys.includes(derivePublicKeyText(key))) throw new Rejected(`${keyFile} is not the key of ${name}.`);
  const file = requireApprovalsFile(inputs);
  const savedApprovals = readApprovals(file);
  const areRulesSame =
    savedApprovals !== null &&
    textToSign(savedApprovals.rules, savedApprovals.at) === textToSign(rules, savedApprovals.at);
  const areApprovalsCurrent =
    savedApprovals !== null && (pinned === null || Date.parse(savedApprovals.at) >= Date.parse(pinned.at));
  const approvalsToSign =
    areRulesSame && areApprovalsCurrent ? savedApprovals : { at: isoUtc(inputs.nowMs), rules, signatures: {} };
  const signature = signText(textToSign(rules, approvalsToSign.at), key);
  writeApprovals(file, { ...approvalsToSign, signatures: { ...approvalsToSign.signatures, [name]: signature } });
}

function requireApprovalsFile({ config, pinned }: WriteApprovalInputs): string {
  const file = approvalsFilePath(config, pinned);
  if (file !== null) return file;
  throw new ConfigError("There is no two-person rule.", { hint: "Name approvers under commands.approval." });
}

function listRuleChanges(approvals: Approvals | null, groups: readonly Approvers[], rules: RuleSet): readonly string[] {
  const approvedText = approvals === null ? "" : textToSign(approvals.rules, approvals.at);
  const isApprovalValid =
    approvals !== null && groups.some((group) => findSigners(approvedText, approvals, group).length >= group.needed);
  const approvedRuleLines = isApprovalValid ? formatSettingLines(approvals.rules) : [];
  const currentRuleLines = formatSettingLines(rules);
  return [
    ...approvedRuleLines.filter((line) => !currentRuleLines.includes(line)).map((line) => `- ${line}`),
    ...currentRuleLines.filter((line) => !approvedRuleLines.includes(line)).map((line) => `+ ${line}`),
  ];
}
