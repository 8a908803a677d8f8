import { discord, googlechat, mattermost, ntfy, slack, teams } from "./chat.ts";
import type { Format } from "./format.ts";
import { alertmanager, incidentio, jsm, pagerduty, servicenowEvent, splunkOncall } from "./on-call.ts";

/** Options that a format requires. */
export interface Requirements {
  /** `secret`: the address alone allows posting, so it must be a secret reference. */
  readonly address: "secret" | "any";
  /** The vendor's public address, where there is one. */
  readonly url?: string;
  readonly key: "needed" | "possible" | "none";
}

interface Entry extends Requirements {
  readonly format: Format;
}

/** All formats for one product. */
export const FORMATS = {
  alertmanager: { format: alertmanager, address: "any", key: "none" },
  pagerduty: {
    format: pagerduty,
    address: "any",
    url: "https://events.pagerduty.com/v2/enqueue",
    key: "needed",
  },
  jsm: {
    format: jsm,
    address: "any",
    url: "https://api.atlassian.com/jsm/ops/integration/v2/alerts",
    key: "needed",
  },
  "servicenow-event": { format: servicenowEvent, address: "any", key: "none" },
  incidentio: { format: incidentio, address: "any", key: "needed" },
  "splunk-oncall": { format: splunkOncall, address: "secret", key: "none" },
  ntfy: { format: ntfy, address: "any", key: "possible" },
  slack: { format: slack, address: "secret", key: "none" },
  teams: { format: teams, address: "secret", key: "none" },
  googlechat: { format: googlechat, address: "secret", key: "none" },
  mattermost: { format: mattermost, address: "secret", key: "none" },
  discord: { format: discord, address: "secret", key: "none" },
} as const satisfies Readonly<Record<string, Entry>>;

export type FormatName = keyof typeof FORMATS;

export const FORMAT_NAMES = Object.keys(FORMATS) as [FormatName, ...FormatName[]];

const TEMPLATE: Requirements = { address: "any", key: "none" };

/** Returns the required options of an alarm format. */
export function requirementsOf(name: FormatName | "template"): Requirements {
  return name === "template" ? TEMPLATE : FORMATS[name];
}
