import { expect, test } from "vitest";
import { createLog } from "#src/core/runtime/log.ts";
import { createFleet, describeWithServers, holds } from "./fleet-harness.ts";

const SOURCES = ["east", "north", "south", "west"];
const [WARN, ERROR] = [40, 50];

interface Line {
  readonly level: number;
  readonly msg: string;
  readonly sources?: readonly string[];
  readonly [field: string]: unknown;
}

function captureLog() {
  const lines: Line[] = [];
  const write = (text: string) => {
    for (const line of text.trim().split("\n")) lines.push(JSON.parse(line));
  };
  return { lines, log: createLog({ level: "info", destination: { write } }) };
}

describeWithServers("a handover", () => {
  test("a handover logs on each member one info line for all sources that move together, and no warning", async () => {
    const harness = await createFleet({ sources: SOURCES, isWritable: true });
    const logs = [captureLog(), captureLog(), captureLog()] as const;
    const [first, second, third] = [
      await harness.member("a", logs[0].log),
      await harness.member("b", logs[1].log),
      await harness.member("c", logs[2].log),
    ];
    const settled = (...counts: readonly number[]) =>
      expect.poll(() => [first, second, third].map((member) => member.held().length).toSorted()).toEqual(counts);
    await first.start();
    await settled(0, 0, 4);
    await second.start();
    await settled(0, 2, 2);
    await first.stop(5_000);
    await settled(0, 0, 4);
    await third.start();
    await settled(0, 2, 2);
    await second.stop(5_000);
    await settled(0, 0, 4);
    await third.stop(5_000);
    expect(logs.flatMap(({ lines }) => lines.filter(({ level }) => level >= WARN))).toEqual([]);
    const handovers = (lines: readonly Line[]) =>
      lines.flatMap(({ msg, from, to, sources }) => (sources ? [[msg, from ?? to ?? null, sources.length]] : []));
    expect(logs.map(({ lines }) => handovers(lines))).toEqual([
      [
        ["sources were taken", null, 4],
        ["sources were handed over", "b", 2],
        ["sources were handed over", null, 2],
      ],
      [
        ["sources were taken", "a", 2],
        ["sources were taken", "a", 2],
        ["sources were handed over", "c", 2],
        ["sources were handed over", null, 2],
      ],
      [
        ["sources were taken", "b", 2],
        ["sources were taken", "b", 2],
        ["sources were handed over", null, 4],
      ],
    ]);
  });

  test("a handover logs lost sources once without errors when another member has a later epoch", async () => {
    const harness = await createFleet({ sources: SOURCES, isWritable: true });
    const { lines, log } = captureLog();
    const member = await harness.member("a", log);
    await member.start();
    await holds(member, SOURCES);
    await harness.query("update source set epoch = epoch + 1, holder = 'x', incarnation = 'x', held_since = now()");
    const isLost = ({ msg }: Line) => msg === "the leases on sources were lost";
    await expect.poll(() => lines.some(isLost)).toBe(true);
    await holds(member, SOURCES);
    await member.stop(5_000);
    expect(lines.filter(({ level }) => level >= ERROR)).toEqual([]);
    expect(lines.filter(({ level }) => level === WARN).every(isLost)).toBe(true);
  });
});
