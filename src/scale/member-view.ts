import type { Pipeline } from "../app/build-pipeline.ts";
import { Retryable } from "../core/errors/errors.ts";
import type { Clock } from "../core/runtime/clock.ts";
import { VERSION } from "../core/runtime/version.ts";
import { isoUtc } from "../core/values/iso-utc.ts";
import { joinStores } from "../engine/store/joined-stores.ts";
import type { Outbox } from "../engine/store/store.ts";
import type { Elsewhere, Responses } from "../ui/status/api.ts";
import { createCache } from "../ui/status/cached-documents.ts";
import type { CommandRow } from "../ui/status/commands.ts";
import type { Status, StatusReport } from "../ui/status/report.ts";
import type { SilenceStore } from "../ui/status/silences.ts";
import type { Columns, SinkReport, SinkResponse } from "../ui/status/sinks.ts";
import type { AlarmDays } from "../ui/status/sites.ts";
import { createTagIndex } from "../ui/status/tag-index.ts";

/** Combined view of the sources that a member holds. Questions about one source go to its pipeline. */
export interface MemberView {
  readonly status: Status;
  readonly answers: Responses;
  readonly outbox: Pick<Outbox, "latest" | "resendDeadLetters">;
  silencesOf(source: string): SilenceStore | null;
}

export interface MemberViewOptions {
  readonly clock: Clock;
  readonly startedAtMs: number;
  /** Name of the member. */
  readonly name: string;
  /** For people: where the state is. */
  readonly place: string;
  /** Pipelines of the held sources, by source. */
  readonly pipelines: ReadonlyMap<string, Pipeline>;
  readonly configuration: () => StatusReport["configuration"];
  /** Messages of the member. */
  readonly notices: () => readonly string[];
  readonly databaseBytes: () => Promise<number>;
  /** Who has a source that is not held here. */
  readonly elsewhere: (source: string) => Promise<Elsewhere | null>;
}

export function createMemberView(options: MemberViewOptions): MemberView {
  const { clock, pipelines } = options;
  const all = () => [...pipelines.values()];
  const made = createCache(clock);
  const shownFor = () => pipelines.size * AGE_PER_SOURCE_MS;

  /** States of the sources that are held now. */
  const state = () => joinStores([...pipelines].map(([source, { store }]) => ({ source, store })));

  async function ofAll<T>(ask: (pipeline: Pipeline) => Promise<T>): Promise<readonly T[]> {
    return Promise.all(all().map(ask));
  }

  function answersOf(source: string): Responses {
    const held = pipelines.get(source);
    if (held === undefined) throw new Retryable(`The source ${source} is not held here any more.`);
    return held.answers;
  }

  const sinks = async () => sumOfSinks((await ofAll(({ status }) => status.sinks())).flat());

  const status: Status = {
    sinks,
    async health() {
      const parts = await ofAll(({ status: each }) => each.health());
      const [first] = parts;
      return {
        now: isoUtc(clock.now()),
        sources: parts.flatMap(({ sources }) => sources),
        sinks: worstOfEach(parts.flatMap((part) => part.sinks)),
        commands: first?.commands ?? null,
        // The disk is the database's.
        disk: { free: null, diskBytes: null },
      };
    },
    async report() {
      const reports = await made("reports", shownFor(), () => ofAll(({ status: each }) => each.report()));
      const commands = reports.flatMap((report) => report.commands ?? []);
      const [first] = commands;
      return {
        version: VERSION,
        member: options.name,
        now: isoUtc(clock.now()),
        startedAt: isoUtc(options.startedAtMs),
        notices: [...new Set([...options.notices(), ...reports.flatMap(({ notices }) => notices)])],
        // Leases come in any order; sort them so that the page is stable.
        sources: reports.flatMap(({ sources }) => sources).toSorted((a, b) => a.name.localeCompare(b.name)),
        sinks: sumOfSinks(reports.flatMap((report) => report.sinks)),
        commands:
          first === undefined
            ? null
            : {
                ...first,
                stopped: commands.some(({ stopped }) => stopped),
                writable: sum(commands.map(({ writable }) => writable)),
                waiting: sum(commands.map(({ waiting }) => waiting)),
              },
        configuration: options.configuration(),
        store: {
          file: options.place,
          bytes: await options.databaseBytes(),
          // The disk is the database's.
          free: null,
          diskBytes: null,
          copy: null,
          damaged: [],
        },
      };
    },
    async alarms() {
      const parts = await made("alarms", shownFor(), () => ofAll(({ status: each }) => each.alarms()));
      return parts
        .flat()
        .toSorted(
          (a, b) =>
            a.alarm.trigger.priority.localeCompare(b.alarm.trigger.priority) ||
            Date.parse(b.alarm.triggeredAt) - Date.parse(a.alarm.triggeredAt),
        );
    },
    async silences(asked) {
      const rows = (await ofAll(({ status: each }) => each.silences(asked))).flat();
      const byId = new Map(rows.map((row) => [row.id, row]));
      return [...byId.values()].toSorted((a, b) => a.from.localeCompare(b.from) || a.id.localeCompare(b.id));
    },
  };

  const answers: Responses = {
    get sources() {
      return [...pipelines.keys()];
    },
    elsewhere: options.elsewhere,
    async sinkNames() {
      return [...new Set((await ofAll(({ answers: each }) => each.sinkNames())).flat())];
    },
    async tags(asked) {
      if (asked.source !== undefined) return answersOf(asked.source).tags(asked);
      return createTagIndex({
        clock,
        store: state(),
        sources: [...pipelines.keys()],
        readingOf: (source, id) => pipelines.get(source)?.works.get(source)?.reading(id) ?? null,
      }).list(asked);
    },
    tag: async (source, id) => answersOf(source).tag(source, id),
    alarm: async (asked) => answersOf(asked.source).alarm(asked),
    site: async (source, id) => answersOf(source).site(source, id),
    async alarmDays(asked) {
      if (asked.source !== undefined) return answersOf(asked.source).alarmDays(asked);
      return sumOfDays(await ofAll(({ answers: each }) => each.alarmDays(asked)), clock);
    },
    async commands(asked) {
      if (asked.source !== undefined) return answersOf(asked.source).commands(asked);
      const rows: readonly CommandRow[] = (await ofAll(({ answers: each }) => each.commands(asked))).flat();
      return rows.toSorted((a, b) => b.at.localeCompare(a.at)).slice(0, asked.limit);
    },
    async sink(name) {
      const found = (await ofAll(({ answers: each }) => each.sink(name))).filter((sink) => sink !== null);
      const report = (await sinks()).find(({ sink }) => sink === name);
      return report === undefined ? null : sumOfSinkAnswers(found, report);
    },
    source: async (name) => answersOf(name).source(name),
    plot: async (asked) => answersOf(asked.source).plot(asked),
    stop() {
      for (const each of all()) each.answers.stop();
    },
  };

  return {
    status,
    answers,
    outbox: {
      latest: (...asked) => state().outbox.latest(...asked),
      resendDeadLetters: (...asked) => state().outbox.resendDeadLetters(...asked),
    },
    silencesOf: (source) => pipelines.get(source)?.store ?? null,
  };
}

/**
 * How old what is shown may be for each source that is held, in milliseconds: every open page, probe and scrape would ask
 * the database some questions about each of them. With two sources it is as good as now, with 300 three seconds.
 */
const AGE_PER_SOURCE_MS = 10;

/** From the best to the worst; a sink is as well as the worst of its parts. */
const STATES = ["idle", "delivering", "starting", "never started", "not running"];

function sumOfSinks(reports: readonly SinkReport[]): readonly SinkReport[] {
  return [...Map.groupBy(reports, ({ sink }) => sink).values()].flatMap((parts) => {
    const [worst] = parts.toSorted((a, b) => badness(b) - badness(a));
    if (worst === undefined) return [];
    return {
      ...worst,
      depth: sumOfKnown(parts.map(({ depth }) => depth)),
      again: sumOfKnown(parts.map(({ again }) => again)),
      exact: parts.every(({ exact }) => exact),
      oldest: parts.flatMap(({ oldest }) => oldest ?? []).toSorted()[0] ?? null,
      deadLetters: sumOfKnown(parts.map(({ deadLetters }) => deadLetters)),
      dropped: sumOfKnown(parts.map(({ dropped }) => dropped)),
      remembered: sumOfKnown(parts.map(({ remembered }) => remembered)),
    };
  });
}

function worstOfEach<T extends { readonly name: string; readonly state: string }>(sinks: readonly T[]) {
  return [...Map.groupBy(sinks, ({ name }) => name).values()].flatMap((parts) =>
    parts.toSorted((a, b) => badness(b) - badness(a)).slice(0, 1),
  );
}

function badness({ state }: { readonly state: string }): number {
  const place = STATES.indexOf(state);
  return place < 0 ? STATES.length : place;
}

function sumOfSinkAnswers(
  parts: readonly SinkResponse[],
  { connector, problem, sink, state }: SinkReport,
): SinkResponse {
  return {
    ...{ sink, connector, state, problem },
    lag: sumOfColumns(parts.map(({ lag }) => lag)),
    rate: sumOfColumns(parts.map(({ rate }) => rate)),
    dead: parts.flatMap(({ dead }) => dead).toSorted((a, b) => b.at.localeCompare(a.at)),
    deadTotal: sum(parts.map(({ deadTotal }) => deadTotal)),
  };
}

/** Minute by minute; what no part knows is not known. */
function sumOfColumns(parts: readonly Columns[]): Columns {
  const sums = new Map<number, number | null>();
  for (const { t, value } of parts)
    for (const [n, at] of t.entries()) sums.set(at, sumOfKnown([sums.get(at) ?? null, value[n] ?? null]));
  const rising = [...sums].toSorted(([a], [b]) => a - b);
  return { t: rising.map(([at]) => at), value: rising.map(([, value]) => value) };
}

function sumOfDays(parts: readonly AlarmDays[], clock: Clock): AlarmDays {
  const days = parts[0]?.days ?? [isoUtc(clock.now()).slice(0, 10)];
  const byPriority: Record<string, readonly number[]> = {};
  for (const part of parts)
    for (const [priority, counts] of Object.entries(part.byPriority))
      byPriority[priority] = counts.map((count, n) => count + (byPriority[priority]?.[n] ?? 0));
  return { days, byPriority };
}

function sum(numbers: readonly number[]): number {
  return numbers.reduce((total, number) => total + number, 0);
}

/** Null where nothing is known. */
function sumOfKnown(numbers: readonly (number | null)[]): number | null {
  const known = numbers.filter((number) => number !== null);
  return known.length === 0 ? null : sum(known);
}
