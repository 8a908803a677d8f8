import { formatDuration } from "../../core/values/duration.ts";
import { printableLine, toPrintableJson } from "../../core/values/printable-text.ts";
import type { BuildingSummary } from "./building-inspection.ts";
import { tagCountText, tagUnitsText } from "./building-summary-texts.ts";
import { historyPollMs, type SetupChoices, type UnitGroup, unitGroups } from "./setup-choices.ts";

export interface ConfigurationValues {
  readonly name: string;
  readonly baseUrl: string;
  readonly allowPlainHttp: boolean;
  readonly tokenFile: string;
  readonly caFile: string | null;
  readonly timeZone: string;
  /** URL of the MQTT broker; null if events are written to files. */
  readonly mqttUrl: string | null;
  readonly stateFolder: string;
  readonly eventsFolder: string;
  readonly statusPort: number;
  readonly date: string;
}

export const STATUS_PORT = 9850;

/** Builds the text of `plenum.yaml`. `quotaLine`: share of the quota that the choices use; null without a plan. */
export function buildPlenumYaml(
  configValues: ConfigurationValues,
  choices: SetupChoices,
  building: BuildingSummary,
  quotaLine: string | null,
): string {
  const yamlLines = [
    ...yamlHeaderLines(configValues, building),
    ...(configValues.stateFolder === "state" ? [] : ["state:", `  folder: ${yamlScalar(configValues.stateFolder)}`]),
    ...(configValues.statusPort === STATUS_PORT
      ? []
      : [`status: { port: ${configValues.statusPort} } # ${STATUS_PORT} was taken`]),
    "sources:",
    `  ${configValues.name}:`,
    ...[
      `base_url: ${yamlScalar(configValues.baseUrl)}`,
      ...(configValues.allowPlainHttp ? ["allow_plain_http: true"] : []),
      `token: { file: ${yamlScalar(configValues.tokenFile)} }`,
      ...(configValues.caFile === null ? [] : [`ca_file: ${yamlScalar(configValues.caFile)}`]),
      `time_zone: ${configValues.timeZone}`,
      ...(choices.polite === 1 ? [] : [`quota: { polite: ${choices.polite} }`]),
      ...disabledScheduleLines(building),
      ...readClassLines(choices, building, quotaLine),
      ...historyConfigLines(choices, building),
    ].map((line) => `    ${line}`),
    ...sinkConfigLines(configValues),
    ...(building.token.abilities.includes("write:tags")
      ? ["# The token may write tags. Nothing is written unless `commands` opens it; a smaller token is safer."]
      : []),
  ];
  return `${yamlLines.join("\n")}\n`;
}

function yamlHeaderLines({ baseUrl, date }: ConfigurationValues, building: BuildingSummary): readonly string[] {
  const { token, sites } = building;
  const siteNames = sites.slice(0, 3).map(({ displayName }) => displayName);
  const otherSiteCount = sites.length - siteNames.length;
  const expiryText = token.expiresAt === null ? "never expires" : `expires ${token.expiresAt.slice(0, 10)}`;
  return [
    `# Made for ${baseUrl} on ${date}; plenum check says whether it fits, plenum plan what it costs.`,
    `# ${printableLine(`Token "${token.name}" of ${token.user.name}, ${expiryText}.`)}`,
    `# ${printableLine(`It sees ${siteNames.join(", ")}${otherSiteCount === 0 ? "" : ` and ${otherSiteCount} more sites`}:`)}`,
    `# ${printableLine(`${tagUnitsText(building)}.`)}`,
    "# Every option and its default: config/example.yaml.",
  ];
}

/** Builds lines that switch off lists that the token may not read, because the service would reject them. */
function disabledScheduleLines({ token }: BuildingSummary): readonly string[] {
  const forbiddenLists = ["alarms", "tags", "gateways", "hosts", "systems"].filter(
    (list) => !token.abilities.includes(`read:${list}`),
  );
  if (forbiddenLists.length === 0) return [];
  const disabledSchedules = forbiddenLists.flatMap((list) => (list === "alarms" ? [list, "resolved_sweep"] : [list]));
  return [
    `# The token may not read ${forbiddenLists.join(", ")}.`,
    `schedules: { ${disabledSchedules.map((list) => `${list}: false`).join(", ")} }`,
  ];
}

const READ_CLASS_NAMES = { readings: "readings", meters: "meters", rest: "the rest" } as const;

function readClassLines(choices: SetupChoices, building: BuildingSummary, quotaLine: string | null): readonly string[] {
  const allGroups = unitGroups(building);
  const chosenGroups = allGroups.filter(({ group }) => choices.every[group] !== null);
  if (chosenGroups.length === 0) return [];
  return [
    "# How old values may become; a tag belongs to the first class that selects it.",
    ...(quotaLine === null ? [] : [`# ${quotaLine}`]),
    "read:",
    ...chosenGroups.flatMap((group) => [
      `  - name: ${allGroups.length === 1 ? "everything" : READ_CLASS_NAMES[group.group]} # ${tagCountText({ ...building, tags: group.tags })}`,
      ...unitSelectionLines(group, allGroups, choices),
      `    every: ${formatDuration(choices.every[group.group] ?? 0)}`,
    ]),
  ];
}

/** Builds the tag selection of a unit group. The last group selects all other tags, also those with new units. */
function unitSelectionLines(
  group: UnitGroup,
  allGroups: readonly UnitGroup[],
  choices: SetupChoices,
): readonly string[] {
  const quotedUnitList = (groups: readonly UnitGroup[]) =>
    groups.flatMap(({ units }) => units.map(({ unit }) => quoteYamlText(unit))).join(", ");
  if (allGroups.at(-1) !== group) return [`    select: { units: [${quotedUnitList([group])}] }`];
  const unreadGroups = allGroups.filter((otherGroup) => choices.every[otherGroup.group] === null);
  return unreadGroups.length === 0 ? [] : [`    select: { exclude: { units: [${quotedUnitList(unreadGroups)}] } }`];
}

function historyConfigLines({ history }: SetupChoices, { tags }: BuildingSummary): readonly string[] {
  if (history === null || tags === 0) return [];
  const historyIntervalMs = historyPollMs(tags);
  return [
    "# What the service has logged: new values are followed, and old ones are fetched backwards alongside live work.",
    "history:",
    "  - name: log",
    `    resolution: ${history.resolution}`,
    ...(historyIntervalMs === historyPollMs(0) ? [] : [`    every: ${formatDuration(historyIntervalMs)}`]),
    ...(history.backfillDays === 0 ? [] : [`    backfill: ${history.backfillDays}d`]),
  ];
}

function sinkConfigLines({ mqttUrl, eventsFolder }: ConfigurationValues): readonly string[] {
  if (mqttUrl !== null) return ["sinks:", "  broker:", "    mqtt:", `      url: ${yamlScalar(mqttUrl)}`];
  return [
    "# Where events go: JSON lines in files to begin with. connectors/ has MQTT, InfluxDB, webhooks and more.",
    "sinks:",
    `  files: { file: { folder: ${yamlScalar(eventsFolder)} } }`,
  ];
}

const UNQUOTED_YAML_TEXT = /^(https?:\/\/|mqtts?:\/\/|\.{0,2}\/)?[a-z][\w.:/-]*\w$/i;
const YAML_KEYWORDS = /^(true|false|yes|no|on|off|null)$/i;

function yamlScalar(text: string): string {
  return UNQUOTED_YAML_TEXT.test(text) && !YAML_KEYWORDS.test(text) ? text : quoteYamlText(text);
}

/** Quotes a text for YAML, and writes `$${` for `${`, so that no environment variable is inserted. */
const quoteYamlText = (text: string): string => toPrintableJson(JSON.stringify(text)).replaceAll("${", () => "$${");
