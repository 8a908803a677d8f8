import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { Config } from "#src/app/config/config.ts";
import { readSourceStores, readState } from "#src/cli/shell/open-worker-state.ts";
import { KILL_SWITCH_FILE } from "#src/engine/commands/kill-switch.ts";
import type { Silence } from "#src/engine/silence/alarm-silences.ts";
import { documentSet } from "#src/engine/store/store.ts";
import type { FleetStatus } from "#src/scale/fleet/fleet-status.ts";
import type { StatusReport } from "#src/ui/status/status-report.ts";
import { createFleet, type Harness } from "../member/fleet-harness.ts";
import { absent, freePort } from "../real-servers.ts";
import { createMachine, fleetOf, type Machine, PASSWORD } from "./fleet-machine-harness.ts";
import { type Ended, onlyLine } from "./plenum.ts";

const SOURCES = ["east", "north", "south"];
const authorization = `Basic ${Buffer.from(`plenum:${PASSWORD}`).toString("base64")}`;
/** These limits only guard against hanging. */

let harness: Harness;
let config: Config;
let local: Machine;
let otherMachine: Machine;

const json = <T>({ stdout }: Ended) => JSON.parse(stdout) as T;
const jsonLines = <T>({ stdout }: Ended) =>
  stdout
    .trimEnd()
    .split("\n")
    .map((line) => JSON.parse(line) as T);

const codeAndError = ({ code, stderr }: Ended) => [code, onlyLine(stderr)];

async function sourceOwnedBy({ member }: Machine): Promise<string> {
  const { sources } = await fleetOf(harness);
  const heldSource = sources.find(({ holder }) => holder === member);
  if (heldSource === undefined) throw new Error(`${member} holds nothing.`);
  return heldSource.source;
}

async function countSources(): Promise<readonly number[]> {
  const { sources } = await fleetOf(harness);
  return [local, otherMachine].map(({ member }) => sources.filter(({ holder }) => holder === member).length);
}

async function waitUntilShared(): Promise<void> {
  const areShared = async () => (await countSources()).toSorted();
  await expect.poll(areShared).toEqual([1, 2]);
}

async function fetchReports(): Promise<readonly StatusReport[]> {
  const { members } = await fleetOf(harness);
  const fetchPage = async (page: string) => (await fetch(`${page}/api/status`, { headers: { authorization } })).json();
  return Promise.all(members.map(async ({ page }) => (await fetchPage(page)) as StatusReport));
}

const areWritesStopped = async () => (await fetchReports()).map(({ commands }) => commands?.stopped);

function findService(source: string) {
  const service = harness.services.get(source);
  if (service === undefined) throw new Error(source);
  return service;
}

const inPostgres = (url: string, more: Readonly<Record<string, unknown>> = {}) => ({
  state: { folder: "state", postgres: { url, ...more } },
});

describe.skipIf(absent("postgres") || absent("mosquitto"))("the command line of a fleet", () => {
  beforeAll(async () => {
    harness = await createFleet({ sources: SOURCES, isWritable: true, outlivesTest: true });
    const { allow, enabled } = Config.parse(harness.configuration).commands;
    const sources = harness.configuration.sources as Readonly<Record<string, { read: readonly object[] }>>;
    const configuration = {
      ...harness.configuration,
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
    local = createMachine(harness, configuration, "here");
    otherMachine = createMachine(harness, configuration, "there");
    await Promise.all([local.start(), otherMachine.start()]);
  });

  afterAll(async () => {
    await Promise.all([local.stop(), otherMachine.stop()]);
    await harness.close();
  });

  test("two members share three sources after their start", async () => {
    await waitUntilShared();
    const fewestDocuments = () =>
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
    await expect.poll(fewestDocuments).toBeGreaterThan(0);
  });

  describe.concurrent("commands in a fleet", () => {
    test("print members, sources and takeovers as text and as JSON", async ({ expect }) => {
      const [people, asJson, status, statusJson] = await local.run(
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
      const statusReport = json<{ fleet: FleetStatus; members: readonly StatusReport[] }>(statusJson);
      expect(statusReport.fleet.sources.map(({ source }) => source)).toEqual(SOURCES);
      expect(statusReport.members.map(({ member }) => member)).toEqual(["here"]);
    });

    test("read the state of one source, no matter which member runs the source", async ({ expect }) => {
      const [own, other] = await Promise.all([sourceOwnedBy(local), sourceOwnedBy(otherMachine)]);
      const [tag = ""] = findService(other).tags;
      const results = await local.run(
        `tags --source ${own} --json`,
        `tags --source ${other} --json`,
        `explain ${tag} --source ${other}`,
        "tags",
        `explain ${tag}`,
      );
      expect(results.map(({ code }) => code)).toEqual([0, 0, 0, 78, 78]);
      for (const each of results.slice(0, 2)) expect(each.stdout).toContain(tag);
      expect(results[2]?.stdout).toContain(tag);
      for (const each of results.slice(3))
        expect(onlyLine(each.stderr)).toBe("There are several sources; add --source and one of east, north, south.");
    });

    test("merge the events of all sources by commit time", async ({ expect }) => {
      interface PrintedEvent {
        readonly id: string;
        readonly position: number;
        readonly source: string;
      }
      const [all, one, last] = await local.run(
        "events --since 1h --json",
        "events --since 1h --json --source north",
        "events --last 3 --json",
      );
      const committed = await readSourceStores(config, SOURCES, async (parts) => {
        const logged = (await Promise.all(parts.map((store) => store.outbox.after(0, 1_000)))).flat();
        return new Map(logged.map(({ event, committedAt }) => [event.id, committedAt]));
      });
      const printedEvents = jsonLines<PrintedEvent>(all);
      const commitTimes = printedEvents.map(({ id }) => committed.get(id) ?? "");
      expect(commitTimes).not.toContain("");
      expect(commitTimes).toEqual(commitTimes.toSorted());
      const names = (each: readonly PrintedEvent[]) => [...new Set(each.map(({ source }) => source.split("/").at(-1)))];
      expect(names(printedEvents).toSorted()).toEqual(SOURCES);
      expect(names(jsonLines<PrintedEvent>(one))).toEqual(["north"]);
      expect(jsonLines<PrintedEvent>(last)).toHaveLength(3);
    });

    test("follow the events of a source that is owned by a member on another machine", async ({ expect }) => {
      const { simulator, siteId } = findService(await sourceOwnedBy(otherMachine));
      const follower = local.running("events --follow --kind alarm-raised --json");
      // The first alarm may be raised before the command has read the log.
      for (const n of [1, 2]) {
        const id = simulator.control.raiseAlarm({ siteId });
        await follower.waitForOutput(new RegExp(`"subject":"[^"]*alarm/${id}"`));
        expect(follower.output().trimEnd().split("\n")).toHaveLength(n);
      }
      expect(await follower.end("SIGINT")).toBe(0);
    });

    test("add up the event counts of all sources, and resend events in each source", async ({ expect }) => {
      const counts = () =>
        readSourceStores(config, SOURCES, (parts) =>
          Promise.all(parts.map(async (store) => (await store.outbox.after(0, 1_000)).length)),
        );
      const sum = (numbers: readonly number[]) => numbers.reduce((total, number) => total + number, 0);
      const countsBefore = await counts();
      const [sinks, replay, unknown] = await local.run(
        "outbox --json",
        "outbox replay broker --since 1h --json",
        "outbox replay nowhere --since 1h",
      );
      expect(json<readonly object[]>(sinks)).toEqual([expect.objectContaining({ sink: "broker" })]);
      const { replayed } = json<{ replayed: number }>(replay);
      expect(replayed).toBeGreaterThan(Math.max(...countsBefore));
      expect(replayed).toBeLessThanOrEqual(sum(await counts()));
      expect(codeAndError(unknown)).toEqual([78, "There is no sink nowhere; known are: broker."]);
      const undeliveredCounts = async () =>
        (await readState({ config }, (store) => store.outbox.lag())).map((lag) => [lag.sink, lag.again]);
      await expect.poll(undeliveredCounts).toEqual([["broker", 0]]);
    });

    test("begin and end a silence once in every source, also from the status page", async ({ expect }) => {
      const buildSilence = json<Silence>(await local.one("silence add --all --for 1h --reason Repair --json"));
      const storedSilences = () =>
        readSourceStores(config, SOURCES, (parts) =>
          Promise.all(parts.map(async (store) => [...(await store.documents<Silence>("silence")).values()])),
        );
      const sentSilence = [{ id: buildSilence.id, isTold: true }];
      await expect.poll(storedSilences).toMatchObject([sentSilence, sentSilence, sentSilence]);
      const endCommand = `silence end ${buildSilence.id}`;
      const [list, end, after, again] = await local.run("silence", endCommand, "silence --json", endCommand);
      expect(list.stdout.split(buildSilence.id)).toHaveLength(2);
      expect([end.code, end.stdout]).toEqual([0, `The silence ${buildSilence.id} is over.\n`]);
      expect(json(after)).toEqual([]);
      const unknownText = `There is no silence ${buildSilence.id}; \`plenum silence\` shows those that there are.`;
      expect(codeAndError(again)).toEqual([78, unknownText]);
      await expect.poll(storedSilences).toEqual([[], [], []]);
      const silenceEnds = await readSourceStores(config, SOURCES, (parts) =>
        Promise.all(parts.map((store) => store.outbox.latest(9, ["silence-ended"]))),
      );
      expect(silenceEnds).toMatchObject(SOURCES.map(() => [{ event: { data: { by: "cli" } } }]));
      const { id } = json<Silence>(await local.one("silence add --all --for 1h --reason Repair --json"));
      await expect.poll(storedSilences).toMatchObject(SOURCES.map(() => [{ id, isTold: true }]));
      const { members } = await fleetOf(harness);
      const [page = ""] = members.filter(({ name }) => name === "there").map((member) => member.page);
      const headers = { "x-plenum": "status-page", authorization };
      const endThere = () => fetch(`${page}/api/silences/${id}/end`, { method: "POST", headers });
      expect((await endThere()).status).toBe(200);
      await expect.poll(storedSilences).toEqual([[], [], []]);
      expect((await endThere()).status).toBe(404);
    });

    test("are rejected when a fleet does not support them, or when they need a fleet and there is none", async ({
      expect,
    }) => {
      const unusedPort = await freePort();
      const { database } = harness;
      const at = (user: string, port: number) => `postgresql://${user}@127.0.0.1:${port}/postgres?sslmode=disable`;
      local.configure("away.json", inPostgres(at("postgres", unusedPort)));
      local.configure("refused.json", inPostgres(at("somebody", database.port), { password: { env: "WRONG" } }));
      local.configure("empty.json", inPostgres(at("postgres", database.port), { schema: "elsewhere" }));
      local.configure("folder.json", { state: { folder: "alone" } });
      const commandLines = [
        "export --from 30d --to 1d --source north --to-folder out",
        "fleet --config folder.json",
        "fleet drain here --config folder.json",
        "fleet drain nobody",
        "fleet --config away.json",
        "fleet --config refused.json",
        "fleet --config empty.json",
      ];
      const [refused, checks] = await Promise.all([
        local.run(...commandLines),
        local.run(
          ...["", " --config away.json", " --config refused.json"].map((config) => `check --json --no-lists${config}`),
        ),
      ]);
      const noFleet = [
        78,
        expect.stringMatching(/^There is no fleet: the configuration keeps its state in a folder\. A fleet shares/),
      ];
      expect(refused.map(codeAndError)).toEqual([
        [78, expect.stringMatching(/^In a fleet an export would spend the quota of whichever member/)],
        noFleet,
        noFleet,
        [78, "The fleet has no member with the name nobody. Use one of: here, there."],
        [75, expect.stringContaining(`127.0.0.1:${unusedPort}`)],
        [78, expect.stringContaining("password")],
        [78, expect.stringMatching(/^There is no state in the schema elsewhere of the database yet\./)],
      ]);
      const databaseLines = (ended: Ended | undefined) =>
        json<readonly { what: string; result: string; detail: string }[]>(ended as Ended).filter(
          ({ what }) => what === "state database",
        );
      expect(databaseLines(checks[0])).toMatchObject([
        { result: "ok", detail: expect.stringMatching(/, schema plenum_state \(.*PostgreSQL \d+.*\), \d+ MiB$/) },
        { result: "warning", detail: expect.stringContaining("data_checksums") },
      ]);
      expect([checks[1]?.code, databaseLines(checks[1])]).toMatchObject([75, [{ result: "unavailable" }]]);
      expect([checks[2]?.code, databaseLines(checks[2])]).toMatchObject([78, [{ result: "wrong" }]]);
    });
  });

  test("writes a tag, stops writing in every member, and resumes writing", async () => {
    const [own, other] = await Promise.all([sourceOwnedBy(local), sourceOwnedBy(otherMachine)]);
    const write = (machine: Machine, source: string, value: number) =>
      machine.one(`write ${findService(source).tags.at(-1)} ${value} --source ${source} --json`);
    const inBoth = (value: number) => Promise.all([write(local, own, value), write(otherMachine, other, value)]);
    const unarmed = async () =>
      (await fetchReports()).map(({ notices }) => notices.some((notice) => notice.includes("writes arm")));
    expect(await unarmed()).toEqual([true, true]);
    for (const writeResult of await inBoth(41)) {
      expect(writeResult.code).toBe(1);
      expect(json(writeResult)).toMatchObject({ outcome: "rejected", reason: "not-armed" });
    }
    expect((await local.one("writes arm")).stdout).toContain("The members of the fleet arm writing");
    await expect.poll(unarmed).toEqual([false, true]);
    const onlyHere = async () => json(await write(otherMachine, other, 41));
    await expect.poll(onlyHere).toMatchObject({
      reason: "not-armed",
      message: expect.stringContaining("Writing was never armed on this machine for the fleet"),
    });
    expect((await otherMachine.one("writes arm")).code).toBe(0);
    await expect.poll(unarmed).toEqual([false, false]);
    const refusedWrite = await write(local, other, 41);
    expect(codeAndError(refusedWrite)).toEqual([
      75,
      expect.stringMatching(
        new RegExp(
          `^The source ${other} is held by the member there of the fleet, on \\S+.*: ask there\\. Run this on its machine`,
        ),
      ),
    ]);
    for (const ended of await inBoth(42)) expect(json(ended)).toMatchObject({ outcome: "confirmed" });
    await expectStop();
    await expect.poll(areWritesStopped, { interval: 50 }).toEqual([true, true]);
    for (const ended of await inBoth(43)) {
      expect(ended.code).toBe(1);
      expect(json(ended)).toMatchObject({ outcome: "rejected", reason: "killed" });
    }
    expect((await otherMachine.one("writes resume")).code).toBe(0);
    await expect.poll(areWritesStopped).toEqual([false, false]);
    writeFileSync(join(local.folder, "state", KILL_SWITCH_FILE), "");
    await expect.poll(areWritesStopped).toEqual([true, false]);
    expect(json(await write(local, own, 43))).toMatchObject({ reason: "killed" });
    expect((await local.one("writes resume")).code).toBe(0);
    await expect.poll(areWritesStopped).toEqual([false, false]);
    for (const ended of await inBoth(44)) expect(json(ended)).toMatchObject({ outcome: "confirmed" });
    for (const source of [own, other])
      expect(
        findService(source)
          .simulator.truth.writes()
          .map(({ value }) => value),
      ).toEqual([42, 44]);
  });

  async function expectStop(): Promise<void> {
    const { code, stdout } = await local.one("writes stop");
    expect([code, stdout]).toEqual([0, "Writing is stopped in the whole fleet, until `plenum writes resume`.\n"]);
  }

  test("stops writing in the whole fleet through a local member while its configuration file is broken", async () => {
    const file = join(local.folder, "plenum.yaml");
    const validText = readFileSync(file, "utf8");
    for (const brokenText of ["", `state: { folder: state, postgres: { url: "\${NO_SUCH_ADDRESS}" } }\n`]) {
      writeFileSync(file, brokenText);
      await expectStop();
      await expect.poll(areWritesStopped).toEqual([true, true]);
      const [status, events, resume] = await local.run("status", "events --last 1", "writes resume");
      expect(status.stdout).toMatch(/^! The configuration file plenum\.yaml is rejected: /);
      expect([status.code, events.code, resume.code]).toEqual([0, 0, 0]);
      await expect.poll(areWritesStopped).toEqual([false, false]);
    }
    writeFileSync(file, validText);
  });

  test("verifies the audit log of each source, and compares the last hash of one log with an expected hash", async () => {
    const heads = jsonLines<{ source: string; records: number; head: string }>(await local.one("audit verify --json"));
    expect(heads.map(({ source }) => source)).toEqual(SOURCES);
    const [first] = heads.filter(({ records }) => records > 0);
    if (first === undefined) throw new Error("Nobody has written.");
    const { head, records, source } = first;
    const results = await local.run(
      "audit verify",
      `audit verify --source ${source}`,
      `audit verify --expect ${records}:${head}`,
      `audit verify --expect ${records}:${head} --source ${source}`,
      `audit verify --expect ${records}:${"0".repeat(64)} --source ${source}`,
    );
    expect(results.map(({ code }) => code)).toEqual([0, 0, 78, 0, 1]);
    expect(results[0]?.stdout.trimEnd().split("\n")).toEqual(
      SOURCES.map((name) => expect.stringMatching(new RegExp(`^${name}: The chain of \\d+ records is whole`))),
    );
    expect(results[1]?.stdout.trimEnd().split("\n")).toHaveLength(1);
    expect(onlyLine(results[2]?.stderr ?? "")).toBe(
      "There are several sources; add --source and one of east, north, south.",
    );
    expect(onlyLine(results[4]?.stderr ?? "")).toContain("was rewritten");
  });

  test("drains a member so that the other takes over, and warns when the last member is drained", async () => {
    const drainResult = await otherMachine.one("fleet drain here --json");
    expect(json(drainResult)).toEqual({ member: "here", draining: true, lastOne: false });
    await expect.poll(countSources).toEqual([0, 3]);
    const [shown, last] = await local.run("fleet", "fleet drain there");
    expect(shown.stdout).toMatch(/^here +draining +0 /m);
    expect(shown.stdout).toMatch(/ here +there +drained$/m);
    expect(last.code).toBe(0);
    expect(last.stdout).toMatch(/^! No other member runs: nothing is polled until/);
    const [there_, here_] = await local.run("fleet undrain there", "fleet undrain here");
    expect(there_.stdout).toBe("there takes its share of the sources again.\n");
    expect(here_.code).toBe(0);
    await waitUntilShared();
  });
});
