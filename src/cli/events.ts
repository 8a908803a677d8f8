import { type Command, InvalidArgumentError } from "commander";
import type { Tag } from "../building.ts";
import { systemClock } from "../clock.ts";
import type { Config } from "../config/config.ts";
import { Filter, matches } from "../delivery/filter.ts";
import { ConfigError } from "../errors.ts";
import type { Event } from "../event.ts";
import { shownEvent } from "../status/rows.ts";
import { documentSet, type LoggedEvent, type Store } from "../store/store.ts";
import type { Held } from "../sync/snapshot.ts";
import { rest } from "../waiting.ts";
import { type CliContext, integer } from "./context.ts";
import { localTime } from "./local-time.ts";
import { lookAtState } from "./look-at-state.ts";
import { moment } from "./past-options.ts";

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

type Wanted = (event: Event) => boolean;

/** How long a new event may go unseen, in milliseconds. */
const LOOK_EVERY_MS = 500;
const PAGE = 500;

/** The log of events, read beside a running worker, which does not notice, or without one. */
export function define(command: Command, context: CliContext): void {
  const several = (value: string, before: readonly string[] = []) => [...before, ...value.split(",")];
  command
    .option("-f, --follow", "go on with new events until Ctrl-C")
    .option(
      "--kind <pattern>",
      "only events of this kind, such as alarm-*; may be given several times",
      several,
    )
    .option("--site <id>", "only events of this site", several)
    .option("--source <name>", "only events of this source", several)
    .option("--tag <id>", "only events about this tag", several)
    .option("--priority <letter>", "only events of alarms of this priority", several)
    .option(
      "--since <time>",
      "from then on: an age such as 2h, or a time such as 2026-03-01T00:00:00Z",
      moment,
    )
    .option("--last <count>", "without --since, so many of the latest", count, 20)
    .addHelpText(
      "after",
      "\nWith --json each event is one line, a CloudEvent as sinks get it, with its position in the log.\n\n" +
        "Examples:\n  plenum events --follow --kind 'alarm-*' --priority A,B\n  plenum events --since 2h --tag 10001\n" +
        "  plenum events --follow --json | jq .subject",
    )
    .action((options: EventsOptions) => show(context, options));
}

async function show(context: CliContext, options: EventsOptions): Promise<void> {
  const config = context.config();
  const terminal = context.terminal();
  await lookAtState(config.state.folder, async (store) => {
    const wanted = await wantedBy(options, config, store);
    const say = (logged: LoggedEvent) => {
      if (terminal.json) terminal.object({ position: logged.position, ...logged.event }, []);
      else terminal.text([lineOf(logged, context.utc())]);
    };
    const end = (await store.outbox.latest(1))[0]?.position ?? 0;
    const first =
      options.since === undefined ? null : await positionAt(store, end, Date.parse(options.since));
    if (first === null) for (const each of await lastOf(store, end, options.last, wanted)) say(each);
    let told = first ?? end;
    const goOn = async () => {
      for (;;) {
        const page = await store.outbox.after(told, PAGE);
        const last = page.at(-1);
        if (last === undefined || context.signal.aborted) return;
        for (const each of page) if (wanted(each.event)) say(each);
        told = last.position;
      }
    };
    await goOn();
    if (options.follow !== true) return;
    let changes = await store.changes();
    while (await rest(systemClock, LOOK_EVERY_MS, context.signal)) {
      const now = await store.changes();
      if (now !== changes) await goOn();
      changes = now;
    }
  });
}

/** `2026-11-23 08:52:10 +01:00  alarm-raised  Supply too cold · North school`. */
function lineOf(logged: LoggedEvent, utc: boolean): string {
  const { type, gist } = shownEvent(logged);
  const { time, siteid, priority } = logged.event;
  const marks = [
    ...(siteid === undefined ? [] : [`site ${siteid}`]),
    ...(priority === undefined ? [] : [`priority ${priority}`]),
  ];
  const at = utc ? time : localTime(Date.parse(time));
  return [at, type.padEnd(18), ...marks, gist].join("  ");
}

/** What the options let through. Throws ConfigError for what there is not, by its name. */
async function wantedBy(options: EventsOptions, config: Config, store: Store): Promise<Wanted> {
  const { kind = [], site = [], source = [], priority = [], tag = [] } = options;
  const filter = Filter.safeParse({ kinds: kind, sites: site, sources: source, priorities: priority });
  if (!filter.success) throw new ConfigError(filter.error.issues.map(({ message }) => message).join(" "));
  const sources = Object.keys(config.sources);
  for (const name of source) {
    if (!sources.includes(name))
      throw new ConfigError(`There is no source ${name}; known are: ${sources.join(", ")}.`);
  }
  for (const id of tag) await refuseUnknown(store, sources, "tag", id);
  for (const id of site) await refuseUnknown(store, sources, "site", id);
  return (event) =>
    matches(filter.data, event) &&
    (tag.length === 0 || tag.some((id) => event.subject.endsWith(`tag/${id}`)));
}

async function refuseUnknown(
  store: Store,
  sources: readonly string[],
  what: "site" | "tag",
  id: string,
): Promise<void> {
  for (const source of sources) {
    if ((await store.document<Held<Tag>>(documentSet(what, source), id)) !== undefined) return;
  }
  throw new ConfigError(`The state knows no ${what} ${id}.`, {
    hint: LISTED_BY[what],
  });
}

const LISTED_BY = {
  site: "`plenum sites` lists the sites.",
  tag: "`plenum tags` lists the tags.",
} as const;

/** The last so many that are wanted, oldest first: looks at the newest thousand, then ever further back. */
async function lastOf(
  store: Store,
  end: number,
  most: number,
  wanted: Wanted,
): Promise<readonly LoggedEvent[]> {
  for (let reach = 1_000; ; reach *= 10) {
    const found: LoggedEvent[] = [];
    let after = Math.max(0, end - reach);
    while (after < end) {
      const page = await store.outbox.after(after, PAGE);
      found.push(...page.filter(({ event, position }) => position <= end && wanted(event)));
      found.splice(0, found.length - most);
      after = page.at(-1)?.position ?? end;
    }
    if (found.length === most || reach >= end) return found;
  }
}

/** The position before the first event that was committed at or after a time. */
async function positionAt(store: Store, end: number, sinceMs: number): Promise<number> {
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

function count(text: string): number {
  const number = integer(text);
  if (number < 1) throw new InvalidArgumentError("Write a whole number, from 1 on.");
  return number;
}
