import { readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { beforeEach, describe, expect, test } from "vitest";
import { createLog } from "#src/core/runtime/log.ts";
import { KILL_SWITCH_FILE } from "#src/engine/commands/kill-switch.ts";
import { openWriteArming } from "#src/engine/commands/write-arming.ts";
import { armThisMachine, DATABASE_ID_KEY, openFleetWritingGuards } from "#src/scale/fleet-tag-write-guards.ts";
import { createMemoryTables, type InMemoryTables } from "../fleet/memory-tables.ts";
import { closeAfterTest, testFolder } from "../test-resources.ts";
import { createVirtualClock } from "../virtual-clock.ts";

const log = createLog({ level: "silent" });
const AT = "2026-06-01T00:00:00.000Z";
const FILE = "ARMED-DATABASE";

let folder: string;
beforeEach(() => {
  folder = testFolder("machine");
});

async function guardsOf(documents: InMemoryTables, stateFolder = folder) {
  const { database } = documents.connect();
  const fleet = { remedy: "run plenum writes resume", isThrown: false };
  const openedGuards = await openFleetWritingGuards({
    database,
    killSwitch: {
      ...{ name: "kill-switch", remedy: fleet.remedy, start: async () => {}, stop: async () => {} },
      isThrown: () => fleet.isThrown,
      async throwSwitch() {
        fleet.isThrown = true;
      },
    },
    stateFolder,
    approvalsFile: null,
    clock: createVirtualClock(0),
    log,
  });
  return { guards: closeAfterTest(openedGuards), database, fleet };
}

describe("a machine of a fleet", () => {
  test("a machine of a fleet writes no tag until its operator arms that machine, even if another machine is armed", async () => {
    const documents = createMemoryTables();
    const { database, guards } = await guardsOf(documents);
    await armThisMachine(database, testFolder("machine"), { by: "another machine", at: AT });
    const armed = { at: AT, by: "another machine", damaged: 0 };
    const arming = await openWriteArming({
      store: { damagedKeys: async () => [], document: async () => armed as never, describe: async () => ({}) as never },
      guards,
      armAtStart: false,
      journal: { recordAudit: async () => {} },
      clock: createVirtualClock(0),
      log,
    });
    expect(arming.findRefusal()).toEqual({
      reason: "not-armed",
      message:
        "Writing was never armed on this machine for the fleet in memory, so nothing is written: run plenum writes arm here once.",
    });
    await armThisMachine(database, folder, { by: "the command line", at: AT });
    expect(arming.findRefusal()).toBeNull();
  });

  test("a machine of a fleet is armed for one database only, also after a restart", async () => {
    const first = createMemoryTables();
    const second = createMemoryTables();
    await armThisMachine(second.connect().database, testFolder("machine"), { by: "its own operator", at: AT });
    await (await guardsOf(first)).guards.armWriting("the person who started the member");
    const refusals = async () =>
      Promise.all([first, second].map(async (each) => (await guardsOf(each)).guards.findUnarmedReason() === null));
    expect(await refusals()).toEqual([true, false]);
    await (await guardsOf(second)).guards.armWriting("the person who started the member");
    expect(await refusals()).toEqual([false, true]);
  });

  test("a machine of a fleet is not armed if its arming file is a symbolic link, or by a database whose id was copied from that file", async () => {
    const documents = createMemoryTables();
    const { guards, database } = await guardsOf(documents);
    await armThisMachine(database, folder, { by: "the command line", at: AT });
    expect(guards.findUnarmedReason()).toBeNull();
    const digest = readFileSync(join(folder, FILE), "utf8");

    const other = createMemoryTables();
    other.bodies.set(DATABASE_ID_KEY, JSON.stringify(digest));
    expect((await guardsOf(other)).guards.findUnarmedReason()).not.toBeNull();

    rmSync(join(folder, FILE));
    expect(guards.findUnarmedReason(), "without the file").not.toBeNull();
    writeFileSync(join(folder, "elsewhere"), digest);
    symlinkSync(join(folder, "elsewhere"), join(folder, FILE));
    expect(guards.findUnarmedReason(), "by a link").not.toBeNull();
  });

  test("a machine of a fleet is not armed when its state folder cannot be written", async () => {
    const documents = createMemoryTables();
    const file = join(folder, "file");
    writeFileSync(file, "");
    await expect(
      armThisMachine(documents.connect().database, join(file, "state"), { by: "a test", at: AT }),
    ).rejects.toThrow();
    expect([...documents.bodies.keys()]).toEqual([DATABASE_ID_KEY]);
  });
});

test("the kill switch is active when it is set in the fleet or in the state folder", async () => {
  const { guards, fleet } = await guardsOf(createMemoryTables());
  const { killSwitch } = guards;
  expect(killSwitch.isOn()).toBe(false);
  writeFileSync(join(folder, KILL_SWITCH_FILE), "");
  expect(killSwitch.isOn()).toBe(true);
  expect(killSwitch.remedy).toBe(`remove ${join(folder, KILL_SWITCH_FILE)}`);
  rmSync(join(folder, KILL_SWITCH_FILE));
  expect(killSwitch.isOn()).toBe(false);
  await killSwitch.turnOn("a message", AT);
  expect([killSwitch.isOn(), fleet.isThrown, killSwitch.remedy]).toEqual([true, true, fleet.remedy]);
});
