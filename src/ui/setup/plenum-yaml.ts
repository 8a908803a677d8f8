import { formatDuration } from "../../core/values/duration.ts";
import { printable, printableJson } from "../../core/values/printable.ts";
import { type Choices, groupsOf, historyEveryMs, type UnitGroup } from "./choices.ts";
import { english, type Message, message } from "./messages.ts";
import type { SeenBuilding } from "./seen.ts";

/** Parts of the file other than the choices. */
export interface Frame {
  /** The source's own name. */
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
  /** Port of the status page: the default, or a free one. */
  readonly statusPort: number;
  /** When it is written, `2026-11-02`. */
  readonly date: string;
}

/** Default port of the status page. */
export const STATUS_PORT = 9850;

/** One line on the share of the quota; null without a plan. */
export type ShareText = string | null;

/** A configuration of about 30 lines that fits what was seen; `plenum check` accepts it. */
export function plenumYaml(frame: Frame, wishes: Choices, seen: SeenBuilding, share: ShareText): string {
  const lines = [
    ...heading(frame, seen),
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
      ...(wishes.polite === 1 ? [] : [`quota: { polite: ${wishes.polite} }`]),
      ...lacking(seen),
      ...classes(wishes, seen, share),
      ...history(wishes, seen),
    ].map((line) => `    ${line}`),
    ...sinks(frame),
    ...writing(seen),
  ];
  return `${lines.join("\n")}\n`;
}

function heading({ baseUrl, date }: Frame, seen: SeenBuilding): readonly string[] {
  const { token, sites } = seen;
  const names = sites.slice(0, 3).map(({ displayName }) => displayName);
  const others = sites.length - names.length;
  const end = token.expiresAt === null ? "never expires" : `expires ${token.expiresAt.slice(0, 10)}`;
  return [
    `# Made for ${baseUrl} on ${date}; plenum check says whether it fits, plenum plan what it costs.`,
    comment(`Token "${token.name}" of ${token.user.name}, ${end}.`),
    comment(`It sees ${names.join(", ")}${others === 0 ? "" : ` and ${others} more sites`}:`),
    comment(`${tagsText(seen)}.`),
    "# Every option and its default: config/example.yaml.",
  ];
}

/** `312 tags (°C 73, % 51, no unit 17)`; said of an estimate that it is one. */
export function tagsText(seen: SeenBuilding): string {
  const { units } = seen;
  const most = units.slice(0, 5).map(({ unit, tags: count }) => `${unit === "" ? "no unit" : unit} ${count}`);
  const rest = units.length > most.length ? " …" : "";
  const counted = english(tagsSaid(seen));
  return most.length === 0 ? counted : `${counted} (${most.join(", ")}${rest})`;
}

/** How many there are, alone. */
export function tagsSaid({ tags, isEstimate }: Pick<SeenBuilding, "tags" | "isEstimate">): Message {
  if (tags === 1) return isEstimate ? message("about 1 tag") : message("1 tag");
  return isEstimate ? message("about {tags} tags", { tags }) : message("{tags} tags", { tags });
}

const ABILITY_OF = [
  ["alarms", "read:alarms"],
  ["tags", "read:tags"],
  ["gateways", "read:gateways"],
  ["hosts", "read:hosts"],
  ["systems", "read:systems"],
] as const;

/** Lists that the token may not ask for are switched off, or each would be refused for ever. */
function lacking({ token }: SeenBuilding): readonly string[] {
  const lists = ABILITY_OF.filter(([, ability]) => !token.abilities.includes(ability)).map(([list]) => list);
  if (lists.length === 0) return [];
  const off = lists.flatMap((list) => (list === "alarms" ? [list, "resolved_sweep"] : [list]));
  return [
    `# The token may not read ${lists.join(", ")}.`,
    `schedules: { ${off.map((list) => `${list}: false`).join(", ")} }`,
  ];
}

const CLASS_NAMES = { readings: "readings", meters: "meters", rest: "the rest" } as const;

/** Name of a group's class; `all` when there is only one. */
export function className({ group }: Pick<UnitGroup, "group">, groups: readonly unknown[]): string {
  return groups.length === 1 ? "everything" : CLASS_NAMES[group];
}

function classes(wishes: Choices, seen: SeenBuilding, share: ShareText): readonly string[] {
  const all = groupsOf(seen);
  const wished = all.filter(({ group }) => wishes.every[group] !== null);
  if (wished.length === 0) return [];
  return [
    "# How old values may become; a tag belongs to the first class that selects it.",
    ...(share === null ? [] : [`# ${share}`]),
    "read:",
    ...wished.flatMap((each) => [
      `  - name: ${className(each, all)} # ${english(tagsSaid({ ...seen, tags: each.tags }))}`,
      ...selection(each, all, wishes),
      `    every: ${formatDuration(wishes.every[each.group] ?? 0)}`,
    ]),
  ];
}

/** The last group takes what the classes before it leave, so that a unit that comes later is read as well. */
function selection(group: UnitGroup, all: readonly UnitGroup[], wishes: Choices): readonly string[] {
  const unitsOf = (groups: readonly UnitGroup[]) =>
    groups.flatMap(({ units }) => units.map(({ unit }) => quoted(unit))).join(", ");
  if (all.at(-1) !== group) return [`    select: { units: [${unitsOf([group])}] }`];
  const unwished = all.filter((each) => wishes.every[each.group] === null);
  return unwished.length === 0 ? [] : [`    select: { exclude: { units: [${unitsOf(unwished)}] } }`];
}

function history({ history: wished }: Choices, { tags }: SeenBuilding): readonly string[] {
  if (wished === null || tags === 0) return [];
  const { resolution, backfillDays } = wished;
  const every = historyEveryMs(tags);
  return [
    "# What the service has logged; followed from now on, and fetched backwards beside live work.",
    "history:",
    `  - name: log`,
    `    resolution: ${resolution}`,
    ...(every === historyEveryMs(0) ? [] : [`    every: ${formatDuration(every)}`]),
    ...(backfillDays === 0 ? [] : [`    backfill: ${backfillDays}d`]),
  ];
}

function sinks({ mqttUrl, eventsFolder }: Frame): readonly string[] {
  if (mqttUrl !== null) return ["sinks:", "  broker:", "    mqtt:", `      url: ${scalar(mqttUrl)}`];
  return [
    "# Where events go: JSON lines in files to begin with. connectors/ has MQTT, InfluxDB, webhooks and more.",
    "sinks:",
    `  files: { file: { folder: ${scalar(eventsFolder)} } }`,
  ];
}

function writing({ token }: SeenBuilding): readonly string[] {
  if (!token.abilities.includes("write:tags")) return [];
  return ["# The token may write tags. Nothing is written unless `commands` opens it; a smaller token is safer."];
}

/** Text that YAML accepts without quotes: a path or an address. */
const PLAIN = /^(https?:\/\/|mqtts?:\/\/|\.{0,2}\/)?[a-z][\w.:/-]*\w$/i;
const OTHER_WORDS = /^(true|false|yes|no|on|off|null)$/i;

/** A path or an address, with quotes only where they are needed. */
function scalar(text: string): string {
  return PLAIN.test(text) && !OTHER_WORDS.test(text) ? text : quoted(text);
}

/** As YAML understands it, whatever is in it; `${` would be taken for a variable, and `$${` is not. */
function quoted(text: string): string {
  return printableJson(JSON.stringify(text)).replaceAll("${", () => "$${");
}

function comment(text: string): string {
  return `# ${printable(text)}`;
}
