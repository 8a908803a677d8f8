import { discord, googlechat, mattermost, ntfy, slack, teams } from "./chat.ts";
import type { ReceiverFormat } from "./format.ts";
import { alertmanager, incidentio, jsm, pagerduty, servicenowEvent, splunkOncall } from "./on-call.ts";

interface FormatOptionRequirements {
  /** `secret`: anyone who knows the address can post, so the address must be a secret reference. */
  readonly addressKind?: "secret";
  readonly url?: string;
  readonly key?: "needed" | "possible";
}

type AlarmFormatEntry = FormatOptionRequirements & { readonly format: ReceiverFormat };

export const ALARM_FORMATS = {
  alertmanager: { format: alertmanager },
  pagerduty: { format: pagerduty, url: "https://events.pagerduty.com/v2/enqueue", key: "needed" },
  jsm: { format: jsm, url: "https://api.atlassian.com/jsm/ops/integration/v2/alerts", key: "needed" },
  "servicenow-event": { format: servicenowEvent },
  incidentio: { format: incidentio, key: "needed" },
  "splunk-oncall": { format: splunkOncall, addressKind: "secret" },
  ntfy: { format: ntfy, key: "possible" },
  slack: { format: slack, addressKind: "secret" },
  teams: { format: teams, addressKind: "secret" },
  googlechat: { format: googlechat, addressKind: "secret" },
  mattermost: { format: mattermost, addressKind: "secret" },
  discord: { format: discord, addressKind: "secret" },
} as const satisfies Readonly<Record<string, AlarmFormatEntry>>;

export type FormatName = keyof typeof ALARM_FORMATS;

export const FORMAT_NAMES = Object.keys(ALARM_FORMATS) as [FormatName, ...FormatName[]];

export function getFormatRequirements(name: FormatName | "template"): FormatOptionRequirements {
  const formatByName: Readonly<Record<FormatName, AlarmFormatEntry>> = ALARM_FORMATS;
  return name === "template" ? {} : formatByName[name];
}
