import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { Config } from "#src/app/config/config.ts";
import { readSourceStores, readState } from "#src/cli/shell/state-access.ts";
import { KILL_FILE } from "#src/engine/commands/kill-switch.ts";
import type { Silence } from "#src/engine/silence/silence.ts";
import { documentSet } from "#src/engine/store/store.ts";
import type { FleetStatus } from "#src/scale/fleet/status.ts";
import type { StatusReport } from "#src/ui/status/report.ts";
import { type Stage, setStage } from "../member/stage.ts";
import { absent, freePort } from "../real-servers.ts";
import { fleetOf, type Machine, PASSWORD, setMachine } from "./fleet-stage.ts";
import { type Ended, onlyLine } from "./plenum.ts";

const SOURCES = ["east", "north", "south"];
const authorization = `Basic ${Buffer.from(`plenum:${PASSWORD}`).toString("base64")}`;
/** These limits only guard against hanging. */
const LONG = { timeout: 60_000 };
const LONGEST = { timeout: 300_000 };

let stage: Stage;
let config: Config;
let here: Machine;
let there: Machine;

const json = <T>({ stdout }: Ended) => JSON.parse(stdout) as T;
const jsonLines = <T>({ stdout }: Ended) =>
  stdout
    .trimEnd()
    .split("\n")
    .map((line) => JSON.parse(line) as T);

const told = ({ code, stderr }: Ended) => [code, onlyLine(stderr)];

async function heldBy({ member }: Machine): Promise<string> {
  const { sources } = await fleetOf(stage);
  const found = sources.find(({ holder }) => holder === member);
  if (found === undefined) throw new Error(`${member} holds nothing.`);
  return found.source;
}

async function shares(): Promise<readonly number[]> {
  const { sources } = await fleetOf(stage);
  return [here, there].map(({ member }) => sources.filter(({ holder }) => holder === member).length);
}

async function shared(): Promise<void> {
  const areShared = async () => (await shares()).toSorted();
  await expect.poll(areShared, LONG).toEqual([1, 2]);
}

async function reports(): Promise<readonly StatusReport[]> {
  const { members } = await fleetOf(stage);
  const report = async (page: string) => (await fetch(`${page}/api/status`, { headers: { authorization } })).json();
  return Promise.all(members.map(async ({ page }) => (await report(page)) as StatusReport));
}

const stopped = async () => (await reports()).map(({ commands }) => commands?.stopped);

function serviceOf(source: string) {
  const service = stage.services.get(source);
  if (service === undefined) throw new Error(source);
  return service;
}

const statedAt = (url: string, more: Readonly<Record<string, unknown>> = {}) => ({
  state: { folder: "state", postgres: { url, ...more } },
});

describe.skipIf(absent("postgres") || absent("mosquitto"))("the command line of a fleet", LONGEST, () => {
  beforeAll(async () => {
    stage = await setStage({ sources: SOURCES, isWritable: true, outlivesTest: true });
    const { allow, enabled } = Config.parse(stage.configuration).commands;
    const sources = stage.configuration.sources as Readonly<Record<string, { read: readonly object[] }>>;
    const configuration = {
      ...stage.configuration,
      status: { port: 0, password: { env: "PASSWORD" } },
      // Writing has most of the quota, so that no command waits for the quota.
      sources: Object.fromEntries(
        Object.entries(sources).map(([name, entry]) => [
          name,
          { ...entry, read: entry.read.map((rule) => ({ ...rule, every: "15s" })) },
        ]),
      ),
      commands: {
        enabled,
        read_back_after: "100ms",
        allow: allow.map(({ source, site_id, tag_id }) => ({
          ...{ source, site_id, tag_id },
          ...{ type: "number", min: 0, max: 100, min_interval: "0s" },
        })),
      },
    };
    config = Config.parse(configuration);
    here = setMachine(stage, configuration, "here");
    there = setMachine(stage, configuration, "there");
    await Promise.all([here.start(), there.start()]);
  }, LONGEST.timeout);

  afterAll(async () => {
    await Promise.all([here.stop(), there.stop()]);
    await stage.close();
  });

  test("two members share three sources after their start", async () => {
    await shared();
    const listed = () =>
      readSourceStores(config, SOURCES, async (parts) => {
        const counts = await Promise.all(
          parts.map(async (store, n) => {
            const source = SOURCES[n] ?? "";
            const values = await store.documents(documentSet("value", source));
            const tags = await store.documents(documentSet("tag", source));
            return Math.min(values.size, tags.size);
          }),
        );
        return Math.min(...counts);
      });
    await expect.poll(listed, LONG).toBeGreaterThan(0);
  });

  describe.concurrent("commands in a fleet", () => {
    test("print members, sources and takeovers as text and as JSON", async ({ expect }) => {
      const [people, asJson, status, statusJson] = await here.run(
        "fleet",
        "fleet --json --takeovers 1",
        "status",
        "status --json",
      );
      expect([people.code, asJson.code, status.code, statusJson.code]).toEqual([0, 0, 0, 0]);
      expect(people.stdout).toMatch(
        /^127\.0\.0\.1:\d+\/plenum, schema plenum_state: 127\.0\.0\.1:\d+, PostgreSQL \d+.*, \d+ MiB\n/,
      );
      for (const member of ["here", "there"])
        expect(people.stdout).toMatch(new RegExp(`^${member} +alive +[12] .*http://127\\.0\\.0\\.1:`, "m"));
      for (const source of SOURCES)
        expect(people.stdout).toMatch(new RegExp(`^${source} +(here|there) .* (first|joined)`, "m"));

      const fleet = json<FleetStatus>(asJson);
      expect(fleet).toMatchObject({
        self: null,
        members: [{ name: "here" }, { name: "there" }],
        database: { synchronousCommit: "on" },
      });
      expect(fleet.sources.map(({ source }) => source)).toEqual(SOURCES);
      expect(fleet.takeovers).toHaveLength(1);

      expect(status.stdout).toMatch(/^Member here on .*: alive, [12] sources?, http/m);
      expect(status.stdout).toMatch(/^Member there on .*: alive, [12] sources?, http/m);
      expect(status.stdout).toContain("Member here, on this machine:");
      expect(status.stdout).not.toContain("Member there, on this machine:");
      const report = json<{ fleet: FleetStatus; members: readonly StatusReport[] }>(statusJson);
      expect(report.fleet.sources.map(({ source }) => source)).toEqual(SOURCES);
      expect(report.members.map(({ member }) => member)).toEqual(["here"]);
    });

    test("read one source of the fleet, no matter which member owns the source", async ({ expect }) => {
      const [own, other] = await Promise.all([heldBy(here), heldBy(there)]);
      const [tag = ""] = serviceOf(other).tags;
      const ended = await here.run(
        `tags --source ${own} --json`,
        `tags --source ${other} --json`,
        `explain ${tag} --source ${other}`,
        "tags",
        `explain ${tag}`,
      );
      expect(ended.map(({ code }) => code)).toEqual([0, 0, 0, 78, 78]);
      for (const each of ended.slice(0, 2)) expect(each.stdout).toContain(tag);
      expect(ended[2]?.stdout).toContain(tag);
      for (const each of ended.slice(3))
        expect(onlyLine(each.stderr)).toBe("There are several sources; add --source and one of east, north, south.");
    });

    test("merge the events of all sources by commit time", async ({ expect }) => {
      interface Said {
        readonly id: string;
        readonly position: number;
        readonly source: string;
      }
      const [all, one, last] = await here.run(
        "events --since 1h --json",
        "events --since 1h --json --source north",
        "events --last 3 --json",
      );
      const committed = await readSourceStores(config, SOURCES, async (parts) => {
        const logged = (await Promise.all(parts.map((store) => store.outbox.after(0, 1_000)))).flat();
        return new Map(logged.map(({ event, committedAt }) => [event.id, committedAt]));
      });
      const said = jsonLines<Said>(all);
      const times = said.map(({ id }) => committed.get(id) ?? "");
      expect(times).not.toContain("");
      expect(times).toEqual(times.toSorted());
      const names = (each: readonly Said[]) => [...new Set(each.map(({ source }) => source.split("/").at(-1)))];
      expect(names(said).toSorted()).toEqual(SOURCES);
      expect(names(jsonLines<Said>(one))).toEqual(["north"]);
      expect(jsonLines<Said>(last)).toHaveLength(3);
    });

    test("follow the events of a source that is owned by a member on another machine", async ({ expect }) => {
      const { simulator, siteId } = serviceOf(await heldBy(there));
      const following = here.running("events --follow --kind alarm-raised --json");
      // The first alarm may be raised before the command has read the log.
      for (const n of [1, 2]) {
        const id = simulator.control.raiseAlarm({ siteId });
        await following.says(new RegExp(`"subject":"[^"]*alarm/${id}"`), 60_000);
        expect(following.output().trimEnd().split("\n")).toHaveLength(n);
      }
      expect(await following.end("SIGINT")).toBe(0);
    });

    test("add up the sinks of all sources, and resend dead letters in each source", async ({ expect }) => {
      const counts = () =>
        readSourceStores(config, SOURCES, (parts) =>
          Promise.all(parts.map(async (store) => (await store.outbox.after(0, 1_000)).length)),
        );
      const sum = (numbers: readonly number[]) => numbers.reduce((total, number) => total + number, 0);
      const before = await counts();
      const [sinks, replay, unknown] = await here.run(
        "outbox --json",
        "outbox replay broker --since 1h --json",
        "outbox replay nowhere --since 1h",
      );
      expect(json<readonly object[]>(sinks)).toEqual([expect.objectContaining({ sink: "broker" })]);
      const { replayed } = json<{ replayed: number }>(replay);
      expect(replayed).toBeGreaterThan(Math.max(...before));
      expect(replayed).toBeLessThanOrEqual(sum(await counts()));
      expect(told(unknown)).toEqual([78, "There is no sink nowhere; known are: broker."]);
      const again = async () =>
        (await readState({ config }, (store) => store.outbox.lag())).map((lag) => [lag.sink, lag.again]);
      await expect.poll(again, LONG).toEqual([["broker", 0]]);
    });

    test("begin and end a silence once in every source, also from the status page", async ({ expect }) => {
      const made = json<Silence>(await here.one("silence add --all --for 1h --reason Repair --json"));
      const held = () =>
        readSourceStores(config, SOURCES, (parts) =>
          Promise.all(parts.map(async (store) => [...(await store.documents<Silence>("silence")).values()])),
        );
      const mine = [{ id: made.id, isTold: true }];
      await expect.poll(held, LONG).toMatchObject([mine, mine, mine]);
      const ending = `silence end ${made.id}`;
      const [list, end, after, again] = await here.run("silence", ending, "silence --json", ending);
      expect(list.stdout.split(made.id)).toHaveLength(2);
      expect([end.code, end.stdout]).toEqual([0, `The silence ${made.id} is over.\n`]);
      expect(json(after)).toEqual([]);
      const unknown = `There is no silence ${made.id}; \`plenum silence\` shows those that there are.`;
      expect(told(again)).toEqual([78, unknown]);
      await expect.poll(held, LONG).toEqual([[], [], []]);
      const ends = await readSourceStores(config, SOURCES, (parts) =>
        Promise.all(parts.map((store) => store.outbox.latest(9, ["silence-ended"]))),
      );
      expect(ends).toMatchObject(SOURCES.map(() => [{ event: { data: { by: "cli" } } }]));

      const { id } = json<Silence>(await here.one("silence add --all --for 1h --reason Repair --json"));
      await expect.poll(held, LONG).toMatchObject(SOURCES.map(() => [{ id, isTold: true }]));
      const { members } = await fleetOf(stage);
      const [page = ""] = members.filter(({ name }) => name === "there").map((member) => member.page);
      const headers = { "x-plenum": "status-page", authorization };
      const endThere = () => fetch(`${page}/api/silences/${id}/end`, { method: "POST", headers });
      expect((await endThere()).status).toBe(200);
      await expect.poll(held, LONG).toEqual([[], [], []]);
      expect((await endThere()).status).toBe(404);
    });

    test("are rejected when a fleet does not support them, or when they need a fleet and there is none", async ({
      expect,
    }) => {
      const free = await freePort();
      const { database } = stage;
      const at = (user: string, port: number) => `postgresql://${user}@127.0.0.1:${port}/postgres?sslmode=disable`;
      here.configure("away.json", statedAt(at("postgres", free)));
      here.configure("refused.json", statedAt(at("somebody", database.port), { password: { env: "WRONG" } }));
      here.configure("empty.json", statedAt(at("postgres", database.port), { schema: "elsewhere" }));
      here.configure("folder.json", { state: { folder: "alone" } });
      const lines = [
        "export --from 30d --to 1d --source north --to-folder out",
        "fleet --config folder.json",
        "fleet drain here --config folder.json",
        "fleet drain nobody",
        "fleet --config away.json",
        "fleet --config refused.json",
        "fleet --config empty.json",
      ];
      const [refused, checks] = await Promise.all([
        here.run(...lines),
        here.run(
          ...["check --json --no-lists", "check --json --no-lists --config away.json"],
          ...["check --json --no-lists --config refused.json", "doctor --json --config away.json"],
        ),
      ]);
      const noFleet = [
        78,
        expect.stringMatching(/^There is no fleet: the configuration keeps its state in a folder\. A fleet shares/),
      ];
      expect(refused.map(told)).toEqual([
        [78, expect.stringMatching(/^In a fleet an export would spend the quota of whichever member/)],
        noFleet,
        noFleet,
        [78, "The fleet has no member with the name nobody. Use one of: here, there."],
        [75, expect.stringContaining(`127.0.0.1:${free}`)],
        [78, expect.stringContaining("password")],
        [78, expect.stringMatching(/^There is no state in the schema elsewhere of the database yet\./)],
      ]);

      const lineOf = (ended: Ended | undefined) =>
        json<readonly { what: string; result: string; detail: string }[]>(ended as Ended).filter(
          ({ what }) => what === "state database",
        );
      expect(lineOf(checks[0])).toMatchObject([
        {
          result: "ok",
          detail: expect.stringMatching(/, schema plenum_state \(.*PostgreSQL \d+.*\), \d+ MiB$/),
        },
        { result: "warning", detail: expect.stringContaining("data_checksums") },
      ]);
      expect([checks[1]?.code, lineOf(checks[1])]).toMatchObject([75, [{ result: "unavailable" }]]);
      expect([checks[2]?.code, lineOf(checks[2])]).toMatchObject([78, [{ result: "wrong" }]]);
      expect(checks[3]?.code).toBe(0);
      expect(checks[3]?.stdout).toContain("State database plenum_state does not respond");
    });
  });

  test("write, stop writing in every member, and resume writing", async () => {
    const [own, other] = await Promise.all([heldBy(here), heldBy(there)]);
    const write = (machine: Machine, source: string, value: number) =>
      machine.one(`write ${serviceOf(source).tags.at(-1)} ${value} --source ${source} --json`);
    const inBoth = (value: number) => Promise.all([write(here, own, value), write(there, other, value)]);
    const unarmed = async () =>
      (await reports()).map(({ notices }) => notices.some((notice) => notice.includes("writes arm")));
    expect(await unarmed()).toEqual([true, true]);
    for (const ended of await inBoth(41)) {
      expect(ended.code).toBe(1);
      expect(json(ended)).toMatchObject({ outcome: "rejected", reason: "not-armed" });
    }
    expect((await here.one("writes arm")).stdout).toContain("The members of the fleet arm writing");
    await expect.poll(unarmed).toEqual([false, true]);
    const onlyHere = async () => json(await write(there, other, 41));
    await expect.poll(onlyHere).toMatchObject({
      reason: "not-armed",
      message: expect.stringContaining("Writing was never armed on this machine for the fleet"),
    });
    expect((await there.one("writes arm")).code).toBe(0);
    await expect.poll(unarmed).toEqual([false, false]);
    const elsewhere = await write(here, other, 41);
    expect(told(elsewhere)).toEqual([
      75,
      expect.stringMatching(
        new RegExp(
          `^The source ${other} is held by the member there of the fleet, on \\S+.*: ask there\\. Run this on its machine`,
        ),
      ),
    ]);
    for (const ended of await inBoth(42)) expect(json(ended)).toMatchObject({ outcome: "confirmed" });

    const stop = await here.one("writes stop");
    expect([stop.code, stop.stdout]).toEqual([
      0,
      "Writing is stopped in the whole fleet, until `plenum writes resume`.\n",
    ]);
    await expect.poll(stopped, { interval: 50 }).toEqual([true, true]);
    for (const ended of await inBoth(43)) {
      expect(ended.code).toBe(1);
      expect(json(ended)).toMatchObject({ outcome: "rejected", reason: "killed" });
    }
    expect((await there.one("writes resume")).code).toBe(0);
    await expect.poll(stopped).toEqual([false, false]);

    writeFileSync(join(here.folder, "state", KILL_FILE), "");
    await expect.poll(stopped).toEqual([true, false]);
    expect(json(await write(here, own, 43))).toMatchObject({ reason: "killed" });
    expect((await here.one("writes resume")).code).toBe(0);
    await expect.poll(stopped).toEqual([false, false]);
    for (const ended of await inBoth(44)) expect(json(ended)).toMatchObject({ outcome: "confirmed" });
    for (const source of [own, other])
      expect(
        serviceOf(source)
          .simulator.truth.writes()
          .map(({ value }) => value),
      ).toEqual([42, 44]);
  });

  test("stop writing in the whole fleet through a member on this machine while its configuration file is broken", async () => {
    const file = join(here.folder, "plenum.yaml");
    const good = readFileSync(file, "utf8");
    for (const broken of ["", `state: { folder: state, postgres: { url: "\${NO_SUCH_ADDRESS}" } }\n`]) {
      writeFileSync(file, broken);
      const stop = await here.one("writes stop");
      expect([stop.code, stop.stdout]).toEqual([
        0,
        "Writing is stopped in the whole fleet, until `plenum writes resume`.\n",
      ]);
      await expect.poll(stopped, { timeout: 10_000 }).toEqual([true, true]);
      const [status, events, resume] = await here.run("status", "events --last 1", "writes resume");
      expect(status.stdout).toMatch(/^! The configuration file plenum\.yaml is rejected: /);
      expect([status.code, events.code, resume.code]).toEqual([0, 0, 0]);
      await expect.poll(stopped, { timeout: 10_000 }).toEqual([false, false]);
    }
    writeFileSync(file, good);
  });

  test("verify the audit log of each source, and the expected head of one source", async () => {
    const heads = jsonLines<{ source: string; records: number; head: string }>(await here.one("audit verify --json"));
    expect(heads.map(({ source }) => source)).toEqual(SOURCES);
    const [first] = heads.filter(({ records }) => records > 0);
    if (first === undefined) throw new Error("Nobody has written.");
    const { head, records, source } = first;
    const ended = await here.run(
      "audit verify",
      `audit verify --source ${source}`,
      `audit verify --expect ${records}:${head}`,
      `audit verify --expect ${records}:${head} --source ${source}`,
      `audit verify --expect ${records}:${"0".repeat(64)} --source ${source}`,
    );
    expect(ended.map(({ code }) => code)).toEqual([0, 0, 78, 0, 1]);
    expect(ended[0]?.stdout.trimEnd().split("\n")).toEqual(
      SOURCES.map((name) => expect.stringMatching(new RegExp(`^${name}: The chain of \\d+ records is whole`))),
    );
    expect(ended[1]?.stdout.trimEnd().split("\n")).toHaveLength(1);
    expect(onlyLine(ended[2]?.stderr ?? "")).toBe(
      "There are several sources; add --source and one of east, north, south.",
    );
    expect(onlyLine(ended[4]?.stderr ?? "")).toContain("was rewritten");
  });

  test("drain a member so that the other takes over, and warn when the last member is drained", async () => {
    const drained = await there.one("fleet drain here --json");
    expect(json(drained)).toEqual({ member: "here", draining: true, lastOne: false });
    await expect.poll(shares, LONG).toEqual([0, 3]);
    const [shown, last] = await here.run("fleet", "fleet drain there");
    expect(shown.stdout).toMatch(/^here +draining +0 /m);
    expect(shown.stdout).toMatch(/ here +there +drained$/m);
    expect(last.code).toBe(0);
    expect(last.stdout).toMatch(/^! No other member runs: nothing is polled until/);
    const [there_, here_] = await here.run("fleet undrain there", "fleet undrain here");
    expect(there_.stdout).toBe("there takes its share of the sources again.\n");
    expect(here_.code).toBe(0);
    await shared();
  });
});
