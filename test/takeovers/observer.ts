import { askAt } from "../ask-postgres.ts";
import type { RealServer } from "../real-servers.ts";
import type { LoggedEvent, Takeover } from "./evidence.ts";

export type Observer = ReturnType<typeof createObserver>;

export function createObserver(server: RealServer, schema: string) {
  let lastTakeover = 0;

  const rows = (text: string) => askAt(server, "plenum", `set search_path = ${schema}; ${text}`);

  const positions = (answer: readonly (readonly unknown[])[]) =>
    new Map(answer.map(([source, position]) => [String(source), Number(position)]));

  return {
    async look() {
      const members = await rows("select name from member where gone is null and not draining and not leaving");
      const held = await rows("select coalesce(holder, ''), count(*) from source group by 1");
      return { members: members.map(([name]) => String(name)), held: positions(held) };
    },
    async newTakeovers(): Promise<readonly Takeover[]> {
      const found = await rows(
        `select id, source, from_member, to_member, epoch, extract(epoch from at) * 1000, reason
         from takeover where id > ${lastTakeover} order by id`,
      );
      lastTakeover = Number(found.at(-1)?.[0] ?? lastTakeover);
      return found.map(([, source, from, to, epoch, atMs, reason]) => ({
        source: String(source),
        from: from === null ? null : String(from),
        to: String(to),
        epoch: Number(epoch),
        atMs: Math.floor(Number(atMs)),
        reason: String(reason),
      }));
    },
    async log(): Promise<readonly LoggedEvent[]> {
      const found = await rows("select source, position, id from event order by source, position");
      return found.map(([source, position, id]) => ({
        source: String(source),
        position: Number(position),
        id: String(id),
      }));
    },
    newest: async () => positions(await rows("select source, max(position) from event group by 1")),
    async delivered() {
      const found = await rows("select source, name, position from sink");
      return found.map(([source, sink, position]) => [String(source), String(sink), Number(position)] as const);
    },
    async drain(member: string, draining: boolean): Promise<void> {
      await rows(`update member set draining = ${draining} where name = '${member}'`);
    },
  };
}
