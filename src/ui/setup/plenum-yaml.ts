import { formatDuration } from "../../core/values/duration.ts";
import { printableLine, toPrintableJson } from "../../core/values/printable-text.ts";
import type { BuildingSummary } from "./building-inspection.ts";
import { englishText, tagCountMessage, tagsText } from "./building-messages.ts";
import { historyEveryMs, type SetupChoices, type UnitGroup, unitGroups } from "./setup-choices.ts";

export interface ConfigurationFrame {
  readonly name: string;
  readonly baseUrl: string;
  readonly allowPlainHttp: boolean;
  readonly tokenFile: string;
  readonly caFile: string | null;
  readonly timeZone: string;
  /** Null: events go to files. */
  readonly mqttUrl: string | null;
  readonly stateFolder: string;
  readonly eventsFolder: string;
  readonly statusPort: number;
  readonly date: string;
}

export const STATUS_PORT = 9850;

/** Returns a configuration of about 30 lines for a building. `quotaLine` states the share of the quota; null without a plan. */
export function plenumYaml(
  frame: ConfigurationFrame,
  choices: SetupChoices,
  building: BuildingSummary,
  quotaLine: string | null,
): string {
  const lines = [
    ...heading(frame, building),
    ...(frame.stateFolder === "state" ? [] : ["state:", `  folder: ${scalar(frame.stateFolder)}`]),
    ...(frame.statusPort === STATUS_PORT ? [] : [`status: { port: ${frame.statusPort} } # ${STATUS_PORT} was taken`]),
    "sources:",
    `  ${frame.name}:`,
    ...[
      `base_url: ${scalar(frame.baseUrl)}`,
      ...(frame.allowPlainHttp ? ["allow_plain_http: true"] : []),
      `token: { file: ${scalar(frame.tokenFile)} }`,
      ...(frame.caFile === null ? [] : [`ca_file: ${scalar(frame.caFile)}`]),
      `time_zone: ${frame.timeZone}`,
      ...(choices.polite === 1 ? [] : [`quota: { polite: ${choices.polite} }`]),
      ...disabledSchedules(building),
      ...classLines(choices, building, quotaLine),
      ...historyLines(choices, building),
    ].map((line) => `    ${line}`),
    ...sinkLines(frame),
    ...(building.token.abilities.includes("write:tags")
      ? ["# The token may write tags. Nothing is written unless `commands` opens it; a smaller token is safer."]
      : []),
  ];
  return `${lines.join("\n")}\n`;
}

function heading({ baseUrl, date }: ConfigurationFrame, building: BuildingSummary): readonly string[] {
  const { token, sites } = building;
  const names = sites.slice(0, 3).map(({ displayName }) => displayName);
  const others = sites.length - names.length;
  const end = token.expiresAt === null ? "never expires" : `expires ${token.expiresAt.slice(0, 10)}`;
  return [
    `# Made for ${baseUrl} on ${date}; plenum check says whether it fits, plenum plan what it costs.`,
    `# ${printableLine(`Token "${token.name}" of ${token.user.name}, ${end}.`)}`,
    `# ${printableLine(`It sees ${names.join(", ")}${others === 0 ? "" : ` and ${others} more sites`}:`)}`,
    `# ${printableLine(`${tagsText(building)}.`)}`,
    "# Every option and its default: config/example.yaml.",
  ];
}

/** Switches off lists that the token may not read; otherwise the service would refuse each forever. */
function disabledSchedules({ token }: BuildingSummary): readonly string[] {
  const lists = ["alarms", "tags", "gateways", "hosts", "systems"].filter(
    (list) => !token.abilities.includes(`read:${list}`),
  );
  if (lists.length === 0) return [];
  const off = lists.flatMap((list) => (list === "alarms" ? [list, "resolved_sweep"] : [list]));
  return [
    `# The token may not read ${lists.join(", ")}.`,
    `schedules: { ${off.map((list) => `${list}: false`).join(", ")} }`,
  ];
}

const CLASS_NAMES = { readings: "readings", meters: "meters", rest: "the rest" } as const;

function classLines(choices: SetupChoices, building: BuildingSummary, quotaLine: string | null): readonly string[] {
  const all = unitGroups(building);
  const chosen = all.filter(({ group }) => choices.every[group] !== null);
  if (chosen.length === 0) return [];
  return [
    "# How old values may become; a tag belongs to the first class that selects it.",
    ...(quotaLine === null ? [] : [`# ${quotaLine}`]),
    "read:",
    ...chosen.flatMap((each) => [
      `  - name: ${all.length === 1 ? "everything" : CLASS_NAMES[each.group]} # ${englishText(tagCountMessage({ ...building, tags: each.tags }))}`,
      ...selection(each, all, choices),
      `    every: ${formatDuration(choices.every[each.group] ?? 0)}`,
    ]),
  ];
}

/** The last group selects everything that earlier classes leave, so that new units are read as well. */
function selection(group: UnitGroup, all: readonly UnitGroup[], choices: SetupChoices): readonly string[] {
  const listUnits = (groups: readonly UnitGroup[]) =>
    groups.flatMap(({ units }) => units.map(({ unit }) => quoteText(unit))).join(", ");
  if (all.at(-1) !== group) return [`    select: { units: [${listUnits([group])}] }`];
  const unread = all.filter((each) => choices.every[each.group] === null);
  return unread.length === 0 ? [] : [`    select: { exclude: { units: [${listUnits(unread)}] } }`];
}

function historyLines({ history }: SetupChoices, { tags }: BuildingSummary): readonly string[] {
  if (history === null || tags === 0) return [];
  const every = historyEveryMs(tags);
  return [
    "# What the service has logged; followed from now on, and fetched backwards beside live work.",
    "history:",
    "  - name: log",
    `    resolution: ${history.resolution}`,
    ...(every === historyEveryMs(0) ? [] : [`    every: ${formatDuration(every)}`]),
    ...(history.backfillDays === 0 ? [] : [`    backfill: ${history.backfillDays}d`]),
  ];
}

function sinkLines({ mqttUrl, eventsFolder }: ConfigurationFrame): readonly string[] {
  if (mqttUrl !== null) return ["sinks:", "  broker:", "    mqtt:", `      url: ${scalar(mqttUrl)}`];
  return [
    "# Where events go: JSON lines in files to begin with. connectors/ has MQTT, InfluxDB, webhooks and more.",
    "sinks:",
    `  files: { file: { folder: ${scalar(eventsFolder)} } }`,
  ];
}

/** Text that YAML accepts without quotes: a path or an address. */
const PLAIN = /^(https?:\/\/|mqtts?:\/\/|\.{0,2}\/)?[a-z][\w.:/-]*\w$/i;
const OTHER_WORDS = /^(true|false|yes|no|on|off|null)$/i;

function scalar(text: string): string {
  return PLAIN.test(text) && !OTHER_WORDS.test(text) ? text : quoteText(text);
}

/** Quotes any text for YAML. `$${` keeps `${` from being replaced by an environment variable. */
function quoteText(text: string): string {
  return toPrintableJson(JSON.stringify(text)).replaceAll("${", () => "$${");
}
