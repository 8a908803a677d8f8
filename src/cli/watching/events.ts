import type { Command } from "commander";
import type { Config } from "../../app/config/config.ts";
import { ConfigError } from "../../core/errors/errors.ts";
import type { Event } from "../../core/model/event.ts";
import { systemClock } from "../../core/runtime/clock.ts";
import { sleepFor } from "../../core/runtime/waiting.ts";
import { Filter, matchesFilter } from "../../engine/delivery/filter.ts";
import type { LoggedEvent, Store } from "../../engine/store/store.ts";
import { eventSummary } from "../../ui/status/events.ts";
import type { CliContext } from "../shell/context.ts";
import { refuseUnknown, refuseUnknownPriorities, refuseUnknownSources } from "../shell/known-ids.ts";
import { addLogOptions, collectWords } from "../shell/options.ts";
import { readParts } from "../shell/state-access.ts";
import { formatLocalTime } from "../shell/terminal.ts";

interface EventsOptions {
  readonly follow?: boolean;
  readonly kind?: readonly string[];
  readonly site?: readonly string[];
  readonly source?: readonly string[];
  readonly priority?: readonly string[];
  readonly tag?: readonly string[];
  readonly since?: string;
  readonly last: number;
}

type EventTest = (event: Event) => boolean;

const POLL_INTERVAL_MS = 500;
const PAGE_EVENTS = 500;

export function define(command: Command, context: CliContext): void {
  command
    .option("-f, --follow", "continue with new events until Ctrl-C")
    .option("--kind <pattern>", "only events of this kind, such as alarm-*; may be given several times", collectWords)
    .option("--site <id>", "only events of this site", collectWords)
    .option("--source <name>", "only events of this source", collectWords)
    .option("--tag <id>", "only events about this tag", collectWords)
    .option("--priority <letter>", "only events of alarms of this priority", collectWords);
  addLogOptions(command)
    .addHelpText(
      "after",
      "\nWith --json each event is one line, a CloudEvent as sinks get it, with its position in the log.\n\n" +
        "Examples:\n  plenum events --follow --kind 'alarm-*' --priority A,B\n  plenum events --since 2h --tag 10001\n" +
        "  plenum events --follow --json | jq .subject",
    )
    .action((options: EventsOptions) => showEvents(context, options));
}

async function showEvents(context: CliContext, options: EventsOptions): Promise<void> {
  const config = await context.acceptedConfig();
  const terminal = context.terminal();
  refuseUnknownSources(config, options.source ?? []);
  await readParts(config, options.source ?? Object.keys(config.sources), async (stores, all) => {
    const wanted = await createEventTest(options, config, all);
    let isEmpty = true;
    const say = (logged: LoggedEvent) => {
      isEmpty = false;
      if (terminal.json) terminal.object({ position: logged.position, ...logged.event }, []);
      else terminal.text([formatEvent(logged, context.utc())]);
    };
    const logs = await Promise.all(stores.map((store) => readLog(store, options, wanted)));
    for (const each of mergeByTime(logs, options)) say(each);
    if (options.follow !== true) {
      if (isEmpty && !terminal.json) terminal.say("No event matches.");
      return;
    }
    do for (const log of logs) for (const each of await log.readNew(context.signal)) say(each);
    while (await sleepFor(systemClock, POLL_INTERVAL_MS, context.signal));
  });
}

type LogReader = Awaited<ReturnType<typeof readLog>>;

async function readLog(store: Store, options: EventsOptions, isWanted: EventTest) {
  let changes = await store.changes();
  const end = (await store.outbox.latest(1))[0]?.position ?? 0;
  let printed = end;

  async function after(position: number, signal?: AbortSignal): Promise<readonly LoggedEvent[]> {
    const found: LoggedEvent[] = [];
    for (let from = position; signal?.aborted !== true; ) {
      const page = await store.outbox.after(from, PAGE_EVENTS);
      const last = page.at(-1);
      if (last === undefined) break;
      found.push(...page.filter(({ event }) => isWanted(event)));
      from = last.position;
      printed = Math.max(printed, from);
    }
    return found;
  }

  const present =
    options.since === undefined
      ? await findLastMatching(store, end, options.last, isWanted)
      : await after(await findPosition(store, end, Date.parse(options.since)));
  return {
    present,
    async readNew(signal: AbortSignal): Promise<readonly LoggedEvent[]> {
      const now = await store.changes();
      if (now === changes) return [];
      changes = now;
      return after(printed, signal);
    },
  };
}

/** Merges events of several logs by commit time, because positions are counted in each log. */
function mergeByTime(parts: readonly LogReader[], { last, since }: EventsOptions): readonly LoggedEvent[] {
  const [only] = parts;
  if (parts.length === 1 && only !== undefined) return only.present;
  const all = parts.flatMap(({ present }) => present).toSorted((a, b) => a.committedAt.localeCompare(b.committedAt));
  return since === undefined ? all.slice(-last) : all;
}

function formatEvent(logged: LoggedEvent, utc: boolean): string {
  const { type, gist } = eventSummary(logged);
  const { time, siteid, priority } = logged.event;
  const marks = [
    ...(siteid === undefined ? [] : [`site ${siteid}`]),
    ...(priority === undefined ? [] : [`priority ${priority}`]),
  ];
  const at = utc ? time : formatLocalTime(Date.parse(time));
  return [at, type.padEnd(18), ...marks, gist].join("  ");
}

async function createEventTest(options: EventsOptions, config: Config, store: Store): Promise<EventTest> {
  const { kind = [], site = [], source = [], priority = [], tag = [] } = options;
  const filter = Filter.safeParse({ kinds: kind, sites: site, sources: source, priorities: priority });
  if (!filter.success) throw new ConfigError(filter.error.issues.map(({ message }) => message).join(" "));
  const sources = Object.keys(config.sources);
  await refuseUnknown(store, sources, "tag", tag);
  await refuseUnknown(store, sources, "site", site);
  await refuseUnknownPriorities(store, sources, priority);
  return (event) =>
    matchesFilter(filter.data, event) && (tag.length === 0 || tag.some((id) => event.subject.endsWith(`tag/${id}`)));
}

/** Returns the last matching events, oldest first: searches the newest 1,000, then ten times as many, and so on. */
async function findLastMatching(
  store: Store,
  end: number,
  most: number,
  wanted: EventTest,
): Promise<readonly LoggedEvent[]> {
  for (let reach = 1_000; ; reach *= 10) {
    const found: LoggedEvent[] = [];
    let after = Math.max(0, end - reach);
    while (after < end) {
      const page = await store.outbox.after(after, PAGE_EVENTS);
      found.push(...page.filter(({ event, position }) => position <= end && wanted(event)));
      found.splice(0, found.length - most);
      after = page.at(-1)?.position ?? end;
    }
    if (found.length === most || reach >= end) return found;
  }
}

/** Finds the position before the first event committed at or after a time. */
async function findPosition(store: Store, end: number, sinceMs: number): Promise<number> {
  let low = 0;
  let high = end;
  while (low < high) {
    const middle = Math.floor((low + high) / 2);
    const [next] = await store.outbox.after(middle, 1);
    if (next === undefined || Date.parse(next.committedAt) >= sinceMs) high = middle;
    else low = next.position;
  }
  return low;
}
