import { isDeepStrictEqual } from "node:util";
import type { ConfigChange } from "../../core/model/config-change-report.ts";
import { maskCredentials } from "../../core/runtime/log.ts";
import { formatDuration } from "../../core/values/duration.ts";
import { Config } from "./config.ts";
import { findSinkConnector, type SinkConfigEntry } from "./config-sections.ts";
import { parseSecretReference } from "./contradictory-options.ts";
import { isTextOption } from "./schema-lookup.ts";

/** Reasons why a changed option needs a restart, by option path; `*` is a user-defined name. */
const RESTART_REASON_BY_OPTION: Readonly<Record<string, string>> = {
  "state.folder": "the state is opened at a start",
  "state.postgres": "the state is opened at a start",
  "state.plots": "what is kept for plots is settled at a start",
  "status.host": "the page takes its address at a start",
  "status.port": "the page takes its port at a start",
  "status.trusted_proxy": "who is believed about visitors is settled at a start",
  "status.behind_tls_proxy": "who is believed about visitors is settled at a start",
  "sources.*.base_url": "the connection to the service is made at a start",
  "sources.*.allow_plain_http": "the connection to the service is made at a start",
  "sources.*.token": "the connection to the service is made at a start; a new token in the same place counts at once",
  "sources.*.ca_file": "the connection to the service is made at a start",
  "sources.*.proxy": "the connection to the service is made at a start",
  "sources.*.deadlines": "the connection to the service is made at a start",
  "sources.*.page_size": "the connection to the service is made at a start",
  "sources.*.max_body_bytes": "the connection to the service is made at a start",
  "sources.*.time_zone": "what is known of days and months was counted in the old zone",
  "sources.*.quota.separate_endpoints": "how the service counts is settled at a start",
  "commands.rehearsal": "a rehearsal counts for itself from a start on",
  "sources.*.quota.list_requests_per_minute": "the pace of lists is settled at a start",
};
const SOURCE_RESTART_REASON = "sources are connected at a start";
const COMMANDS_RESTART_REASON = "what may be written names sources, and those are others only from the next start on";
const STATUS_RESTART_REASON = "the passwords belong to an address that changes only at a start";

const PASSWORD_CHANGE_EFFECT = "at once; logged-in users must log in again";

/** When an option that needs no restart takes effect, by option path. The longest matching path counts. */
const EFFECT_BY_RELOADABLE_OPTION: Readonly<Record<string, string>> = {
  "state.max_bytes": "at once",
  "state.max_age": "at once",
  "state.replay_window": "at once",
  "log.level": "from the next line on",
  "status.password": PASSWORD_CHANGE_EFFECT,
  "status.viewer_password": PASSWORD_CHANGE_EFFECT,
  "status.metrics_token": PASSWORD_CHANGE_EFFECT,
  "sources.*.read": "with the next request",
  "sources.*.history": "with the next request",
  "sources.*.schedules": "at the next due time; nothing is asked again for it",
  "sources.*.spread": "at the next due time; nothing is asked again for it",
  "sources.*.alarms": "with the next poll",
  "sources.*.inventory": "the lists that it is about are asked for at once",
  "sources.*.names": "at once; a tag with another name is reported as changed",
  "sources.*.alarms.startup": "at the next start, as it says",
  "sources.*.heartbeat": "at once",
  "sources.*.quota": "at once; what was spent in this minute counts",
  commands: "at once, as far as it is approved",
};

export function findConfigChanges(before: Config, after: Config): readonly ConfigChange[] {
  return findOptionDifferences([], before, after).map(({ path, old, now }) => {
    const restartCause = findRestartReason(path, before, after);
    return {
      path: path.join("."),
      ...displayOldAndNewValue(path, old, now),
      effect: restartCause === null ? "alone" : "restart",
      how: restartCause ?? describeChangeEffect(path, before, after),
    };
  });
}

export function computeConfigInForce(before: Config, after: Config): Config {
  return {
    ...after,
    state: keepOldRestartOptions(["state"], before.state, after.state) as Config["state"],
    status: needsStatusPageRestart(before, after) ? before.status : after.status,
    sources: Object.fromEntries(
      Object.entries(before.sources).map(([name, entry]) => {
        const newEntry = after.sources[name];
        return [
          name,
          newEntry === undefined ? entry : (keepOldRestartOptions(["sources", name], entry, newEntry) as typeof entry),
        ];
      }),
    ),
    commands: hasSameSourceNames(before, after)
      ? { ...after.commands, rehearsal: before.commands.rehearsal }
      : before.commands,
  };
}

function keepOldRestartOptions(path: readonly string[], oldValue: unknown, newValue: unknown): unknown {
  if (RESTART_REASON_BY_OPTION[toOptionPathPattern(path)] !== undefined) return oldValue;
  if (!isPlainObject(oldValue) || !isPlainObject(newValue)) return newValue;
  const mergedOptions: Record<string, unknown> = { ...newValue };
  for (const key of new Set([...Object.keys(oldValue), ...Object.keys(newValue)])) {
    const mergedValue = keepOldRestartOptions([...path, key], oldValue[key], newValue[key]);
    if (mergedValue === undefined) delete mergedOptions[key];
    else mergedOptions[key] = mergedValue;
  }
  return mergedOptions;
}

function findRestartReason(path: readonly string[], before: Config, after: Config): string | null {
  const [section] = path;
  if (section === "sources" && path.length === 2) return SOURCE_RESTART_REASON;
  const restartReasonText = findTextOfLongestPath(RESTART_REASON_BY_OPTION, path);
  if (restartReasonText !== undefined) return restartReasonText;
  if (section === "commands" && !hasSameSourceNames(before, after)) return COMMANDS_RESTART_REASON;
  if (section === "status" && needsStatusPageRestart(before, after)) return STATUS_RESTART_REASON;
  return null;
}

function describeChangeEffect(path: readonly string[], before: Config, after: Config): string {
  const [section, name = ""] = path;
  if (section === "sinks") return describeSinkChangeEffect(before.sinks[name], after.sinks[name]);
  const effectText = findTextOfLongestPath(EFFECT_BY_RELOADABLE_OPTION, path);
  if (effectText === undefined) throw new Error(`There is no text for how a change of ${path.join(".")} takes effect.`);
  return effectText;
}

function describeSinkChangeEffect(before: SinkConfigEntry | undefined, after: SinkConfigEntry | undefined): string {
  const wasSinkOn = before?.enabled === true;
  const isSinkOn = after?.enabled === true;
  if (wasSinkOn && !isSinkOn) return "the sink finishes its batch, keeps its place and gets nothing more";
  if (!wasSinkOn && isSinkOn)
    return before === undefined
      ? `the sink begins with ${after?.from === "now" ? "what happens from now on" : `from: ${after?.from}`}; one of this name that was there before goes on where it was`
      : "the sink goes on where it was";
  return isSinkOn ? "the sink finishes its batch and goes on at the same place" : "nothing; the sink is not enabled";
}

/** True if the address of the status page changes. Changed passwords then also wait for a restart. */
function needsStatusPageRestart(before: Config, after: Config): boolean {
  return (["host", "port", "trusted_proxy", "behind_tls_proxy"] as const).some(
    (key) => !isDeepStrictEqual(before.status[key], after.status[key]),
  );
}

function hasSameSourceNames(before: Config, after: Config): boolean {
  const sortedSourceNames = ({ sources }: Config) => Object.keys(sources).toSorted();
  return isDeepStrictEqual(sortedSourceNames(before), sortedSourceNames(after));
}

function findTextOfLongestPath(table: Readonly<Record<string, string>>, path: readonly string[]): string | undefined {
  const optionPathPrefixes = path.map((_, n) => toOptionPathPattern(path.slice(0, path.length - n)));
  return optionPathPrefixes.map((prefix) => table[prefix]).find((text) => text !== undefined);
}

/** Replaces the source's name in an option path: `sources.main.read` → `sources.*.read`. */
function toOptionPathPattern(path: readonly string[]): string {
  return path.map((pathStep, index) => (index === 1 && path[0] === "sources" ? "*" : pathStep)).join(".");
}

interface OptionDifference {
  readonly path: readonly string[];
  readonly old: unknown;
  readonly now: unknown;
}

function findOptionDifferences(path: readonly string[], old: unknown, now: unknown): readonly OptionDifference[] {
  if (isDeepStrictEqual(old, now)) return [];
  const [oldEntries, newEntries] = [findListEntriesByName(old), findListEntriesByName(now)];
  if (oldEntries !== null && newEntries !== null) return findListDifferences(path, oldEntries, newEntries);
  if (!isPlainObject(old) || !isPlainObject(now) || isSecretRef(old) || isSecretRef(now)) return [{ path, old, now }];
  const allOptionNames = [...new Set([...Object.keys(now), ...Object.keys(old)])];
  return allOptionNames.flatMap((key) => findOptionDifferences([...path, key], old[key], now[key]));
}

function findListDifferences(path: readonly string[], old: ListEntries, now: ListEntries): readonly OptionDifference[] {
  const entryNames = [...new Set([...now.keys(), ...old.keys()])];
  const [oldOrder, newOrder] = [old, now].map((entries) =>
    [...entries.keys()].filter((key) => old.has(key) && now.has(key)),
  );
  // The order of read classes matters, because a tag belongs to the first class that selects the tag.
  const isListReordered = path[0] === "sources" && !isDeepStrictEqual(oldOrder, newOrder);
  return [
    ...(isListReordered ? [{ path: [...path, "(order)"], old: oldOrder, now: newOrder }] : []),
    ...entryNames.flatMap((key) => findOptionDifferences([...path, key], old.get(key), now.get(key))),
  ];
}

type ListEntries = ReadonlyMap<string, unknown>;

/** Finds list entries by a unique name: read classes by `name`, writable tags by source and id. */
function findListEntriesByName(list: unknown): ListEntries | null {
  if (!Array.isArray(list)) return null;
  const listEntryByName = new Map<string, unknown>();
  for (const listEntry of list) {
    if (!isPlainObject(listEntry)) return null;
    const { name, tag_id, source } = listEntry;
    const key = typeof tag_id === "string" ? (source === undefined ? tag_id : `${source}/${tag_id}`) : name;
    if (typeof key !== "string" || listEntryByName.has(key)) return null;
    listEntryByName.set(key, listEntry);
  }
  return listEntryByName;
}

function displayOldAndNewValue(path: readonly string[], old: unknown, now: unknown) {
  if (path.length === 2 && path[0] === "sinks") {
    const findConnector = (sink: unknown) => (sink === undefined ? null : findSinkConnector(sink as SinkConfigEntry));
    return { before: findConnector(old), after: findConnector(now) };
  }
  const oldValue = displayOptionValue(path, old);
  const newValue = displayOptionValue(path, now);
  return { before: oldValue, after: newValue !== null && newValue === oldValue ? `another ${newValue}` : newValue };
}

const MAX_SHOWN_VALUE_LENGTH = 160;

function isPlainObject(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function displayOptionValue(path: readonly string[], value: unknown): string | null {
  if (value === undefined || value === null) return null;
  const maskedValue = hideSecretValues(path, value);
  const valueText = maskCredentials(typeof maskedValue === "string" ? maskedValue : JSON.stringify(maskedValue));
  return valueText.length <= MAX_SHOWN_VALUE_LENGTH ? valueText : `${valueText.slice(0, MAX_SHOWN_VALUE_LENGTH - 1)}…`;
}

function hideSecretValues(path: readonly string[], value: unknown): unknown {
  if (isSecretRef(value) || path.includes("headers")) return "secret";
  if (typeof value === "number") return isTextOption(Config, path) ? formatDuration(value) : value;
  if (typeof value === "string") return path[0] === "sinks" ? hideUrlPath(value) : value;
  if (Array.isArray(value)) return value.map((entry) => hideSecretValues([...path, "0"], entry));
  if (!isPlainObject(value)) return value;
  const definedOptions = Object.entries(value).filter(([, optionValue]) => optionValue !== undefined);
  return Object.fromEntries(
    definedOptions.map(([key, optionValue]) => [key, hideSecretValues([...path, key], optionValue)]),
  );
}

const isSecretRef = (value: unknown): boolean => isPlainObject(value) && parseSecretReference(value) !== null;

/** Hides the path of a URL, because the path is the secret of some receivers (Slack, Teams). */
function hideUrlPath(text: string): string {
  const url = /^[a-z][a-z0-9+.-]*:\/\//i.test(text) ? URL.parse(text) : null;
  if (url === null) return text;
  const hasHiddenUrlPart = url.pathname.length > 1 || url.search !== "" || url.username !== "" || url.password !== "";
  return `${url.protocol}//${url.host}${hasHiddenUrlPart ? "/…" : ""}`;
}
