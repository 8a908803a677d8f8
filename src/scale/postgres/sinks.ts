import { eventIn } from "../../core/codec/stored-event.ts";
import type { Kind } from "../../core/model/event.ts";
import type { Sequence } from "../../core/model/sequence.ts";
import { plainList } from "../../core/postgres/lists.ts";
import { newEpoch } from "../../engine/store/damage.ts";
import type { LagQueries, PendingRow } from "../../engine/store/lag.ts";
import { URGENT_KIND } from "../../engine/store/outbox-rules.ts";
import { type SinkPosition, sinkStateSet } from "../../engine/store/store.ts";
import type { RunQuery } from "./documents.ts";
import type { Query, QueryResult } from "./state-database.ts";

interface KnownSink extends SinkPosition {
  /** Sequence number at the cursor. */
  readonly counted: Sequence;
}

/** Stores the cursors of one source's sinks. The holder of the source reads them once. */
export function createSinks(source: string, query: RunQuery, isHolder: boolean) {
  let known: Promise<ReadonlyMap<string, KnownSink>> | null = null;

  async function read(): Promise<ReadonlyMap<string, KnownSink>> {
    const { rows } = await query(
      `select name, position::double precision, urgent::double precision, ended, counted::double precision, epoch from sink where source = $1`,
      [source],
    );
    return new Map(
      rows.map(([name, position, urgent, ended, counted, epoch]) => {
        const sink = String(name);
        const number = { epoch: String(epoch), number: Number(counted) };
        return [
          sink,
          {
            sink,
            position: Number(position),
            urgent: Number(urgent),
            ended: ended === null ? null : String(ended),
            counted: number,
          },
        ];
      }),
    );
  }

  async function all(): Promise<ReadonlyMap<string, KnownSink>> {
    if (!isHolder) return read();
    known ??= read();
    const asked = known;
    try {
      return await asked;
    } catch (error) {
      if (known === asked) known = null;
      throw error;
    }
  }

  return {
    find: async (sink: string): Promise<KnownSink | undefined> => (await all()).get(sink),

    forget(): void {
      known = null;
    },

    /** Applies a settlement to the cached sink state. */
    async moved(
      sink: string,
      to: number,
      counted: Sequence | undefined,
      which: "position" | "urgent" = "position",
    ): Promise<void> {
      const asked = known;
      const map = await asked;
      const before = map?.get(sink);
      if (map === null || map === undefined || before === undefined || known !== asked) return;
      const number =
        counted?.epoch === before.counted.epoch && counted.number > before.counted.number ? counted : before.counted;
      const now = { ...before, [which]: Math.max(to, before[which]), counted: number };
      known = Promise.resolve(new Map(map).set(sink, now));
    },

    register: (sink: string, from: "now" | "beginning"): Query => ({
      text: `insert into sink (source, name, position, epoch)
        select $1, $2, ${from === "now" ? "last_position" : "0"}, $3 from source where name = $1
        on conflict (source, name) do nothing`,
      values: [source, sink, newEpoch()],
    }),

    /** Moves a cursor forward, never back. Numbers of an old epoch are ignored. */
    moveTo: (
      sink: string,
      to: number,
      counted: Sequence | undefined,
      which: "position" | "urgent" = "position",
    ): Query => ({
      text: `update sink set ${which} = greatest(${which}, $3::bigint),
          counted = case when epoch = $4 then greatest(counted, $5::bigint) else counted end
        where source = $1 and name = $2`,
      values: [source, sink, String(to), counted?.epoch ?? null, String(counted?.number ?? 0)],
      name: `move_${which}`,
    }),

    addDropped: (sink: string, count: number): Query => ({
      text: "update sink set dropped = dropped + $3::bigint where source = $1 and name = $2",
      values: [source, sink, String(count)],
    }),

    /** Starts a new epoch: the sink counts its offers from 1 again. */
    beginEpoch: (sink: string): Query => ({
      text: "update sink set counted = 0, epoch = $3 where source = $1 and name = $2",
      values: [source, sink, newEpoch()],
    }),

    setEnded: (sink: string, reason: string | null): Query => ({
      text: "update sink set ended = $3 where source = $1 and name = $2",
      values: [source, sink, reason],
    }),
  };
}

export type Sinks = ReturnType<typeof createSinks>;

/** The queries that `sinkLags` needs, for the sinks of one source. */
export function lagQueries(source: string, query: RunQuery): LagQueries {
  const isAfter = "source = $1 and position > $2::bigint";
  const notSettled = (urgent: number) => `not (position <= ${urgent} and not telemetry and ${URGENT_KIND})`;
  return {
    async sinks() {
      const { rows } = await query(
        `select name, position::double precision, urgent::double precision, ended, dropped::double precision,
           (select count(*)::integer from dead_letter as letter
            where letter.source = $1 and letter.sink = sink.name and not resending),
           (select count(*)::integer from document where document.source = $1 and set_name = $2 || sink.name),
           (select count(*)::integer from again where again.source = $1 and again.sink = sink.name)
         from sink where source = $1 order by name`,
        [source, sinkStateSet("")],
      );
      return rows.map(([sink, position, urgent, ended, dropped, deadLetters, remembered, marked]) => ({
        sink: String(sink),
        position: Number(position),
        urgent: Number(urgent),
        ended: ended === null ? null : String(ended),
        dropped: Number(dropped),
        deadLetters: Number(deadLetters),
        remembered: Number(remembered),
        marked: Number(marked),
      }));
    },
    async last() {
      const { rows } = await query("select coalesce(max(position), 0)::double precision from event where source = $1", [
        source,
      ]);
      return Number(rows[0]?.[0] ?? 0);
    },
    // The indexes answer all of it without reading a body.
    async classes({ position, urgent }) {
      const isFact = `${isAfter} and not telemetry ${urgent > position ? `and ${notSettled(urgent)}` : ""}`;
      const { rows } = await query(
        `select (select count(*)::integer from event where ${isAfter}),
           (select count(*)::integer from event where ${isAfter} and not telemetry),
           (select count(*)::integer from event where ${isFact}),
           (select min(position)::double precision from event where ${isFact}),
           (select position::double precision from event
            where ${isAfter} and telemetry order by position limit 1)`,
        [source, String(position)],
      );
      const [all = 0, notValues = 0, facts = 0, firstFact = null, firstTelemetry = null] = rows[0] ?? [];
      const firstOf = (cell: typeof firstFact) => (cell === null ? null : Number(cell));
      return [
        { telemetry: 0, events: Number(facts), first: firstOf(firstFact) },
        { telemetry: 1, events: Number(all) - Number(notValues), first: firstOf(firstTelemetry) },
      ];
    },
    async committedMs(position) {
      const { rows } = await query(
        "select committed_ms::double precision from event where source = $1 and position = $2::bigint",
        [source, String(position)],
      );
      const [ms] = rows[0] ?? [];
      return ms === undefined ? null : Number(ms);
    },
    async pending({ position, urgent }, telemetry) {
      const { rows } = await query(
        `select position::double precision, kind, bytes, committed_ms::double precision from event
         where ${isAfter} and ${notSettled(urgent)} and telemetry = any($3::boolean[]) order by position`,
        [source, String(position), plainList(telemetry.map((each) => each === 1))],
      );
      return rows.map(toPending);
    },
    async marked(sink) {
      const { rows } = await query(
        `select again.position::double precision, kind, coalesce(bytes, 0),
           coalesce(committed_ms, 0)::double precision
         from again left join event on event.source = $1 and event.position = again.position
         where again.source = $1 and again.sink = $2`,
        [source, sink],
      );
      return rows.map(toPending);
    },
    async matching(rows, matches) {
      const inLog = rows.flatMap(({ kind, position }) => (kind === null ? [] : [position]));
      const { rows: bodies } = await query(
        "select position::double precision, body from event where source = $1 and position = any($2::bigint[])",
        [source, plainList(inLog)],
      );
      const events = new Map(bodies.map(([position, body]) => [Number(position), String(body)]));
      return rows.filter(({ position }) => {
        const body = events.get(position);
        return body === undefined || matches(eventIn(body));
      });
    },
  };
}

function toPending([position, kind, bytes, committedMs]: QueryResult["rows"][number]): PendingRow {
  return {
    position: Number(position),
    kind: kind === null ? null : (String(kind) as Kind),
    bytes: Number(bytes),
    committed_ms: Number(committedMs),
  };
}
