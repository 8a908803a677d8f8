import { Client } from "pg";
import { afterEach, describe, expect, test } from "vitest";
import { createLog } from "#src/core/runtime/log.ts";
import { absent } from "../real-servers.ts";
import { type Stage, setStage } from "./stage.ts";

let stage: Stage;

afterEach(() => stage.close());

const SOURCES = ["east", "north", "south", "west"];

interface Line {
  readonly level: number;
  readonly msg: string;
  readonly sources?: readonly string[];
  readonly [field: string]: unknown;
}

const WARN = 40;
const ERROR = 50;

function listen() {
  const lines: Line[] = [];
  const write = (text: string) =>
    void lines.push(
      ...text
        .trim()
        .split("\n")
        .map((line) => JSON.parse(line)),
    );
  return { lines, log: createLog({ level: "info", destination: { write } }) };
}

/** What the fleet says about handovers: the text, the other member and the sources. */
const handovers = (lines: readonly Line[]) =>
  lines.flatMap(({ msg, from, to, sources }) =>
    sources === undefined ? [] : [[msg, from ?? to ?? null, sources.length]],
  );

describe.skipIf(absent("postgres") || absent("mosquitto"))("a handover", () => {
  test("logs one info line per member and group of sources, and no warning", async () => {
    stage = await setStage({ sources: SOURCES, isWritable: true });
    const [a, b, c] = [listen(), listen(), listen()];
    const [first, second, third] = [
      await stage.member("a", a.log),
      await stage.member("b", b.log),
      await stage.member("c", c.log),
    ];
    const counts = () => [first, second, third].map((member) => member.held().length);
    const settled = (...wanted: readonly number[]) =>
      expect.poll(() => counts().toSorted(), { timeout: 60_000, interval: 50 }).toEqual(wanted);
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
    const loud = [a, b, c].flatMap(({ lines }) => lines.filter(({ level }) => level >= WARN));
    expect(loud).toEqual([]);
    expect([a, b, c].map(({ lines }) => handovers(lines))).toEqual([
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
  }, 180_000);

  test("logs lost sources once without errors when another member has a later epoch", async () => {
    stage = await setStage({ sources: SOURCES, isWritable: true });
    const { lines, log } = listen();
    const member = await stage.member("a", log);
    await member.start();
    await expect.poll(() => member.held(), { timeout: 60_000, interval: 50 }).toEqual(SOURCES);
    const client = new Client({ connectionString: stage.databaseUrl });
    await client.connect();
    // As if another member had buried this one and taken all its sources, which each of its commits is told.
    await client.query(
      "update plenum_state.source set epoch = epoch + 1, holder = 'x', incarnation = 'x', held_since = now()",
    );
    await client.end();
    await expect
      .poll(() => lines.filter(({ msg }) => msg === "the leases on sources were lost").length, {
        timeout: 60_000,
        interval: 50,
      })
      .toBeGreaterThan(0);
    await expect.poll(() => member.held(), { timeout: 60_000, interval: 50 }).toEqual(SOURCES);
    await member.stop(5_000);
    expect(lines.filter(({ level }) => level >= ERROR)).toEqual([]);
    const warnings = lines.filter(({ level }) => level === WARN).map(({ msg }) => msg);
    expect([...new Set(warnings)]).toEqual(["the leases on sources were lost"]);
  }, 180_000);
});
