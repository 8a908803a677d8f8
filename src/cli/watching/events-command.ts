import type { Command } from "commander";
import type { Config } from "../../app/config/config.ts";
import { ConfigError } from "../../core/errors/errors.ts";
import type { Event } from "../../core/model/event.ts";
import { systemClock } from "../../core/runtime/clock.ts";
import { sleepFor } from "../../core/runtime/waiting.ts";
import { matchesFilter, SinkEventFilter } from "../../engine/delivery/filter.ts";
import type { LoggedEvent, Store } from "../../engine/store/store.ts";
import { eventSummary } from "../../ui/status/event-summary.ts";
import type { CliContext } from "../shell/command-context.ts";
import { addLogRangeOptions, collectWords } from "../shell/common-command-options.ts";
import { readSourceStores } from "../shell/open-worker-state.ts";
import { refuseUnknownIds, refuseUnknownPriorities, refuseUnknownSources } from "../shell/refuse-unknown-ids.ts";
import { formatLocalTime } from "../shell/terminal-output.ts";

interface EventsCommandOptions {
  readonly follow?: boolean;
  readonly kind?: readonly string[];
  readonly site?: readonly string[];
  readonly source?: readonly string[];
  readonly priority?: readonly string[];
  readonly tag?: readonly string[];
  readonly since?: string;
  readonly last: number;
}

type EventFilter = (event: Event) => boolean;

const POLL_INTERVAL_MS = 500;
const EVENTS_PER_PAGE = 500;

export function defineCommand(command: Command, context: CliContext): void {
  command
    .option("-f, --follow", "continue with new events until Ctrl-C")
    .option("--kind <pattern>", "only events of this kind, such as alarm-*; may be given several times", collectWords)
    .option("--site <id>", "only events of this site", collectWords)
    .option("--source <name>", "only events of this source", collectWords)
    .option("--tag <id>", "only events about this tag", collectWords)
    .option("--priority <letter>", "only events of alarms of this priority", collectWords);
  addLogRangeOptions(command)
    .addHelpText(
      "after",
      "\nWith --json each event is one line, a CloudEvent as sinks get it, with its position in the log.\n\n" +
        "Examples:\n  plenum events --follow --kind 'alarm-*' --priority A,B\n  plenum events --since 2h --tag 10001\n" +
        "  plenum events --follow --json | jq .subject",
    )
    .action((options: EventsCommandOptions) => showEvents(context, options));
}

async function showEvents(context: CliContext, options: EventsCommandOptions): Promise<void> {
  const config = await context.acceptedConfig();
  const terminal = context.terminal();
  refuseUnknownSources(config, options.source ?? []);
  await readSourceStores(config, options.source ?? Object.keys(config.sources), async (stores, joinedStore) => {
    const eventFilter = await createEventFilter(options, config, joinedStore);
    let isOutputEmpty = true;
    const printEvent = (loggedEvent: LoggedEvent) => {
      isOutputEmpty = false;
      if (terminal.json) terminal.print({ position: loggedEvent.position, ...loggedEvent.event }, []);
      else terminal.printText([formatEventLine(loggedEvent, context.isUtc())]);
    };
    const logReaders = await Promise.all(stores.map((store) => openEventLog(store, options, eventFilter)));
    for (const loggedEvent of mergeEventsByTime(logReaders, options)) printEvent(loggedEvent);
    if (options.follow !== true) {
      if (isOutputEmpty && !terminal.json) terminal.info("No event matches.");
      return;
    }
    do
      for (const logReader of logReaders)
        for (const loggedEvent of await logReader.readNewEvents(context.signal)) printEvent(loggedEvent);
    while (await sleepFor(systemClock, POLL_INTERVAL_MS, context.signal));
  });
}

type LogReader = Awaited<ReturnType<typeof openEventLog>>;

async function openEventLog(store: Store, options: EventsCommandOptions, isMatching: EventFilter) {
  let stateVersion = await store.changes();
  const logEndPosition = (await store.outbox.latest(1))[0]?.position ?? 0;
  let printedPosition = logEndPosition;

  async function readEventsAfter(position: number, signal?: AbortSignal): Promise<readonly LoggedEvent[]> {
    const matchingEvents: LoggedEvent[] = [];
    for (let lastReadPosition = position; signal?.aborted !== true; ) {
      const page = await store.outbox.after(lastReadPosition, EVENTS_PER_PAGE);
      const lastEvent = page.at(-1);
      if (lastEvent === undefined) break;
      matchingEvents.push(...page.filter(({ event }) => isMatching(event)));
      lastReadPosition = lastEvent.position;
      printedPosition = Math.max(printedPosition, lastReadPosition);
    }
    return matchingEvents;
  }

  const initialEvents =
    options.since === undefined
      ? await findLastMatchingEvents(store, logEndPosition, options.last, isMatching)
      : await readEventsAfter(await findPositionAtTime(store, logEndPosition, Date.parse(options.since)));
  return {
    initialEvents,
    async readNewEvents(signal: AbortSignal): Promise<readonly LoggedEvent[]> {
      const currentStateVersion = await store.changes();
      if (currentStateVersion === stateVersion) return [];
      stateVersion = currentStateVersion;
      return readEventsAfter(printedPosition, signal);
    },
  };
}

/** Merges events of several event logs by commit time, because each log counts its own positions. */
function mergeEventsByTime(
  logReaders: readonly LogReader[],
  { last, since }: EventsCommandOptions,
): readonly LoggedEvent[] {
  const [onlyReader] = logReaders;
  if (logReaders.length === 1 && onlyReader !== undefined) return onlyReader.initialEvents;
  const events = logReaders
    .flatMap(({ initialEvents }) => initialEvents)
    .toSorted((a, b) => a.committedAt.localeCompare(b.committedAt));
  return since === undefined ? events.slice(-last) : events;
}

function formatEventLine(loggedEvent: LoggedEvent, isUtc: boolean): string {
  const { type, summary } = eventSummary(loggedEvent);
  const { time, siteid, priority } = loggedEvent.event;
  const siteAndPriorityTexts = [
    ...(siteid === undefined ? [] : [`site ${siteid}`]),
    ...(priority === undefined ? [] : [`priority ${priority}`]),
  ];
  const timeText = isUtc ? time : formatLocalTime(Date.parse(time));
  return [timeText, type.padEnd(18), ...siteAndPriorityTexts, summary].join("  ");
}

async function createEventFilter(options: EventsCommandOptions, config: Config, store: Store): Promise<EventFilter> {
  const { kind = [], site = [], source = [], priority = [], tag = [] } = options;
  const filter = SinkEventFilter.safeParse({ kinds: kind, sites: site, sources: source, priorities: priority });
  if (!filter.success) throw new ConfigError(filter.error.issues.map(({ message }) => message).join(" "));
  const sources = Object.keys(config.sources);
  await refuseUnknownIds(store, sources, "tag", tag);
  await refuseUnknownIds(store, sources, "site", site);
  await refuseUnknownPriorities(store, sources, priority);
  return (event) =>
    matchesFilter(filter.data, event) && (tag.length === 0 || tag.some((id) => event.subject.endsWith(`tag/${id}`)));
}

/** Returns the last matching events, oldest first: searches the newest 1,000 events, then 10,000 and so on. */
async function findLastMatchingEvents(
  store: Store,
  endPosition: number,
  maxEvents: number,
  isMatching: EventFilter,
): Promise<readonly LoggedEvent[]> {
  for (let searchedCount = 1_000; ; searchedCount *= 10) {
    const matchingEvents: LoggedEvent[] = [];
    let lastReadPosition = Math.max(0, endPosition - searchedCount);
    while (lastReadPosition < endPosition) {
      const page = await store.outbox.after(lastReadPosition, EVENTS_PER_PAGE);
      matchingEvents.push(...page.filter(({ event, position }) => position <= endPosition && isMatching(event)));
      matchingEvents.splice(0, matchingEvents.length - maxEvents);
      lastReadPosition = page.at(-1)?.position ?? endPosition;
    }
    if (matchingEvents.length === maxEvents || searchedCount >= endPosition) return matchingEvents;
  }
}

async function findPositionAtTime(store: Store, endPosition: number, sinceMs: number): Promise<number> {
  let lowPosition = 0;
  let highPosition = endPosition;
  while (lowPosition < highPosition) {
    const middlePosition = Math.floor((lowPosition + highPosition) / 2);
    const [nextEvent] = await store.outbox.after(middlePosition, 1);
    if (nextEvent === undefined || Date.parse(nextEvent.committedAt) >= sinceMs) highPosition = middlePosition;
    else lowPosition = nextEvent.position;
  }
  return lowPosition;
}
