import { Retryable } from "#src/core/errors/errors.ts";
import type { SqlQuery, SqlResult, SqlValues } from "#src/core/postgres/session.ts";
import type { Clock } from "#src/core/runtime/clock.ts";
import type { StateDatabase } from "#src/scale/postgres/state-database.ts";

/** Executes the statements of `src/scale/fleet` in memory. `fleet.test.ts` and `faults.test.ts` test the real tables. */
export type InMemoryTables = ReturnType<typeof createMemoryTables>;

export interface MemoryLink {
  readonly database: StateDatabase;
  /** `fails`: each call is rejected at once. `stalls`: no call is answered. */
  state: "well" | "fails" | "stalls";
  hears: boolean;
  requests: number;
}

type Member = ReturnType<typeof newMember>;
type SourceOfFleet = ReturnType<typeof newSource>;
type Takeover = readonly [source: string, from: string | null, to: string, epoch: number, at: string, reason: string];

function newMember(row: readonly string[], nowMs: number, draining: boolean) {
  const [name = "", incarnation = "", host = "", version = "", page = "", digest = ""] = row;
  return {
    ...{ name, incarnation, host, version, page, digest, startedMs: nowMs, seenMs: nowMs, renewals: 0 },
    ...{ draining, leaving: false, gone: null as "left" | "lost" | null, unable: "[]", reach: "{}" },
  };
}

function newSource(name: string) {
  const none = null as string | null;
  return {
    name,
    epoch: 0,
    holder: none,
    incarnation: none,
    givenBy: none,
    reason: none,
    sinceMs: null as number | null,
  };
}

export function createMemoryTables(clock: Pick<Clock, "now"> = { now: () => 0 }) {
  const bodies = new Map<string, string>();
  const members = new Map<string, Member>();
  const sources = new Map<string, SourceOfFleet>();
  const takeovers: Takeover[] = [];
  const listeners = new Set<{
    readonly link: MemoryLink;
    readonly topic: string;
    readonly call: () => void;
  }>();
  let digest = "";

  const iso = (ms: number | null) => (ms === null ? null : new Date(ms).toISOString());

  function declareGone(incarnations: readonly string[], renewals: readonly string[]): void {
    for (const member of members.values()) {
      const n = incarnations.indexOf(member.incarnation);
      if (n < 0 || member.gone !== null || renewals[n] !== String(member.renewals)) continue;
      Object.assign(member, { gone: "lost", leaving: false });
    }
  }

  function present(name: string, incarnation: string): Member | null {
    const member = members.get(name);
    return member?.incarnation === incarnation && member.gone === null ? member : null;
  }

  function takeSources(names: readonly string[], epochs: readonly string[], name: string, incarnation: string) {
    const rows: (readonly [string, number, string | null, string])[] = [];
    for (const [n, wanted] of names.entries()) {
      const source = sources.get(wanted);
      if (source === undefined || String(source.epoch) !== epochs[n]) continue;
      const reason = source.holder === null ? (source.reason ?? "first") : "lease-ran-out";
      const from = source.holder ?? source.givenBy;
      const epoch = source.epoch + 1;
      Object.assign(source, { ...{ epoch, holder: name, incarnation, givenBy: null, sinceMs: clock.now(), reason } });
      takeovers.push([wanted, from, name, epoch, iso(clock.now()) ?? "", reason]);
      rows.push([wanted, epoch, from, reason]);
    }
    return rows.toSorted(([a], [b]) => (a < b ? -1 : 1));
  }

  function releaseSources(names: readonly string[], epochs: readonly string[], reasons: readonly string[], of: string) {
    for (const [n, name] of names.entries()) {
      const source = sources.get(name);
      if (source === undefined || String(source.epoch) !== epochs[n] || source.incarnation !== of) continue;
      Object.assign(source, {
        ...{ givenBy: source.holder, holder: null, incarnation: null, sinceMs: null, reason: reasons[n] },
      });
    }
  }

  function readTables(wanted: readonly string[] | null): readonly [string, string] {
    const memberRows = [...members.values()].map(({ startedMs, seenMs, draining, leaving, unable, reach, ...row }) => ({
      ...{ ...row, startedAt: iso(startedMs), seenAt: iso(seenMs), unheardMs: clock.now() - seenMs },
      ...{ isDraining: draining, isLeaving: leaving, unable: JSON.parse(unable), reach: JSON.parse(reach) },
    }));
    const sourceRows = [...sources.values()]
      .filter(({ name }) => wanted === null || wanted.includes(name))
      .map(({ sinceMs, ...source }) => ({ ...source, since: iso(sinceMs) }));
    return [JSON.stringify(memberRows), JSON.stringify(sourceRows)];
  }

  function notify(topic: string): void {
    for (const each of [...listeners]) if (each.topic === topic && each.link.hears) each.call();
  }

  function run({ text, values = [] }: { readonly text: string; readonly values?: SqlValues }): SqlResult["rows"] {
    const cell = (n: number) => String(values[n - 1] ?? "");
    const list = (n: number) => (values[n - 1] ?? []) as unknown as readonly string[];
    const member = present(cell(1), cell(2));
    const update = (change: Partial<Member>): SqlResult["rows"] => {
      if (member !== null) Object.assign(member, change);
      return member === null ? [] : [[1]];
    };
    switch (true) {
      case text.startsWith("notify"):
        notify(cell(1));
        return [];
      case text.startsWith("select body from fleet_document"): {
        const body = bodies.get(cell(1));
        return body === undefined ? [] : [[body]];
      }
      case text.startsWith("insert into fleet_document"):
        if (!text.includes("do nothing") || !bodies.has(cell(1))) bodies.set(cell(1), cell(2));
        return [];
      case text.startsWith("delete from fleet_document"):
        return bodies.get(cell(1)) === cell(2) && bodies.delete(cell(1)) ? [[1]] : [];
      case text.startsWith("select digest"):
        return [[digest]];
      case text.startsWith("update meta"):
        digest = cell(1);
        return [];
      case text.includes("set gone = 'lost'"):
        declareGone(list(1), list(2));
        return [];
      case text.startsWith("select name, incarnation, renewals::text from"):
        return [...members.values()]
          .filter(({ gone, name }) => gone === null && name !== cell(1))
          .map((each) => [each.name, each.incarnation, String(each.renewals)]);
      case text.startsWith("select name, incarnation, renewals::text, host"):
        return [...members.values()]
          .filter(({ gone }) => gone === null)
          .toSorted((a, b) => (a.name < b.name ? -1 : 1))
          .map((each) => [each.name, each.incarnation, String(each.renewals), each.host, each.digest]);
      case text.startsWith("insert into member"): {
        const row = [1, 2, 3, 4, 5, 6].map(cell);
        members.set(cell(1), newMember(row, clock.now(), members.get(cell(1))?.draining ?? false));
        return [];
      }
      case text.startsWith("insert into source"):
        for (const name of list(1)) if (!sources.has(name)) sources.set(name, newSource(name));
        return [];
      case text.includes("set renewals"):
        return update({ seenMs: clock.now(), renewals: (member?.renewals ?? 0) + 1, page: cell(3) });
      case text.includes("set leaving = true"):
        return update({ leaving: true });
      case text.includes("set gone = 'left'"):
        return update({ gone: "left", leaving: false, seenMs: clock.now() });
      case text.includes("set unable"):
        return update({ unable: cell(3) });
      case text.includes("set reach"):
        return update({ reach: cell(3) });
      case text.includes("set draining"):
        Object.assign(members.get(cell(1)) ?? {}, { draining: cell(2) === "true" });
        return members.has(cell(1)) ? [[1]] : [];
      case text.includes("with free as"):
        return takeSources(list(1), list(2), cell(3), cell(4));
      case text.includes("set given_by = holder"):
        releaseSources(list(1), list(2), list(3), cell(4));
        return [];
      case text.includes("json_agg"):
        return [readTables(values[0] === null ? null : list(1))];
      case text.startsWith("select source, from_member"):
        return takeovers.toReversed().slice(0, 100);
      case text.startsWith("delete"):
        return [];
      default:
        throw new Error(`Nothing in memory does this: ${text}`);
    }
  }

  return {
    ...{ members, sources, takeovers, bodies },
    listeners: () => listeners.size,
    digest: () => digest,
    connect(): MemoryLink {
      async function reached<T>(work: () => T | Promise<T>): Promise<T> {
        link.requests += 1;
        if (link.state === "fails") throw new Retryable("The database is away.");
        if (link.state === "stalls") return new Promise(() => {});
        return work();
      }
      const replyTo = (requests: SqlQuery): SqlResult => ({ command: "", rows: run(requests) });
      const query = (text: string, values: SqlValues = []) => reached(() => replyTo({ text, values }));
      const queries = (all: readonly SqlQuery[]) => reached(() => all.map(replyTo));
      const link: MemoryLink = {
        ...{ state: "well", hears: true, requests: 0 },
        database: {
          ...{ name: "in memory", table: (name) => name, query },
          transact: queries,
          transaction: (work) => reached(() => work({ query, runQueries: queries })),
          describe: () =>
            reached(() => ({
              ...{ bytes: 0, schemaVersion: 1, server: "memory", synchronousCommit: "on" },
              ...{ dataChecksums: true, isReplica: false },
            })),
          onNotified(topic, call) {
            const listener = { link, topic, call };
            listeners.add(listener);
            return () => void listeners.delete(listener);
          },
          notify: (topic) => ({ text: "notify", values: [topic] }),
          close: async () => undefined,
        },
      };
      return link;
    },
  };
}
