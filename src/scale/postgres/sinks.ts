import type { Sequence } from "../../core/model/sequence.ts";
import { newEpoch } from "../../engine/store/epoch.ts";
import type { SinkPosition } from "../../engine/store/store.ts";
import type { Ask } from "./documents.ts";
import type { Asked } from "./state-database.ts";

interface KnownSink extends SinkPosition {
  /** The last number that it was offered up to its cursor. */
  readonly counted: Sequence;
}

/** The cursors of one source's sinks. Whoever holds the source reads them once. */
export function createSinks(source: string, ask: Ask, isHolder: boolean) {
  let known: Promise<ReadonlyMap<string, KnownSink>> | null = null;

  async function read(): Promise<ReadonlyMap<string, KnownSink>> {
    const { rows } = await ask(
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

    /** What a settlement did, in what is known. */
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
        counted?.epoch === before.counted.epoch && counted.number > before.counted.number
          ? counted
          : before.counted;
      const now = { ...before, [which]: Math.max(to, before[which]), counted: number };
      known = Promise.resolve(new Map(map).set(sink, now));
    },

    register: (sink: string, from: "now" | "beginning"): Asked => ({
      text: `insert into sink (source, name, position, epoch)
        select $1, $2, ${from === "now" ? "last_position" : "0"}, $3 from source where name = $1
        on conflict (source, name) do nothing`,
      values: [source, sink, newEpoch()],
    }),

    /**
     * Never back: what is settled stays settled. A number of an epoch that has ended meanwhile says nothing of the new one.
     */
    moveTo: (
      sink: string,
      to: number,
      counted: Sequence | undefined,
      which: "position" | "urgent" = "position",
    ): Asked => ({
      text: `update sink set ${which} = greatest(${which}, $3::bigint),
          counted = case when epoch = $4 then greatest(counted, $5::bigint) else counted end
        where source = $1 and name = $2`,
      values: [source, sink, String(to), counted?.epoch ?? null, String(counted?.number ?? 0)],
      name: `move_${which}`,
    }),

    addDropped: (sink: string, count: number): Asked => ({
      text: "update sink set dropped = dropped + $3::bigint where source = $1 and name = $2",
      values: [source, sink, String(count)],
    }),

    /** Has a sink count anew from 1: what it was offered cannot be told by its old count any more. */
    beginEpoch: (sink: string): Asked => ({
      text: "update sink set counted = 0, epoch = $3 where source = $1 and name = $2",
      values: [source, sink, newEpoch()],
    }),

    setEnded: (sink: string, reason: string | null): Asked => ({
      text: "update sink set ended = $3 where source = $1 and name = $2",
      values: [source, sink, reason],
    }),
  };
}

export type Sinks = ReturnType<typeof createSinks>;
