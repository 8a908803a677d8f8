import { discord, googlechat, mattermost, ntfy, slack, teams } from "./chat.ts";
import type { Format } from "./format.ts";
import { alertmanager, incidentio, jsm, pagerduty, servicenowEvent, splunkOncall } from "./on-call.ts";

/** What a format asks of the configuration. */
export interface Requirements {
  /** `secret`: whoever has the address can post there, so it never stands in the configuration itself. */
  readonly address: "secret" | "any";
  /** The vendor's public address, where there is one. */
  readonly url?: string;
  readonly key: "needed" | "possible" | "none";
}

interface Entry extends Requirements {
  readonly format: Format;
}

/** Every format that is for one receiver. */
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

/** What the formats that are no template and no event ask for. */
export function requirementsOf(name: FormatName | "template"): Requirements {
  return name === "template" ? TEMPLATE : FORMATS[name];
}
