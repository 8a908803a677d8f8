import { existsSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { Retryable } from "#src/core/errors/errors.ts";
import { ARM_WRITING_FILE, requestWriteArming } from "#src/engine/commands/write-arming.ts";
import { auditStepOf, type Rig } from "./command-harness.ts";
import { TAG as tag, testRig } from "./test-harness.ts";

const LOOK_MS = 2_000;

const NOT_ARMED = "rejected not-armed";
const attempt = (rig: Rig, id: string) => rig.outcomeOf({ id, tag, value: 22 }, {}, 100_000);

test("writing is armed within 2 s after the request file is created, and stays armed over a restart", async () => {
  const rig = await testRig({ isArmed: false });
  expect(await attempt(rig, "a")).toBe(NOT_ARMED);
  expect(rig.commands.notices()).toEqual([expect.stringContaining("run plenum writes arm once")]);
  requestWriteArming(rig.folder);
  await rig.clock.advance(LOOK_MS);
  expect(await attempt(rig, "b")).toBe("confirmed");
  expect(rig.commands.notices()).toEqual([]);
  expect(existsSync(join(rig.folder, ARM_WRITING_FILE))).toBe(false);
  expect((await rig.audit()).filter(({ step }) => step === "writing-armed")).toHaveLength(1);
  await rig.restart();
  expect(await attempt(rig, "c")).toBe("confirmed");
});

test.each([
  ["a link", (file: string) => symlinkSync(`${file}.target`, file)],
  ["a file with another name", (file: string) => writeFileSync(`${file}.txt`, "")],
])("writing stays unarmed when the file that requests arming is %s", async (_, request) => {
  const rig = await testRig({ isArmed: false });
  const file = join(rig.folder, ARM_WRITING_FILE);
  writeFileSync(`${file}.target`, "");
  request(file);
  await rig.clock.advance(LOOK_MS);
  expect(await attempt(rig, "a")).toBe(NOT_ARMED);
});

test("a rehearsal of a command works while writing is not armed", async () => {
  const rig = await testRig({ isArmed: false, config: { rehearsal: true } });
  expect(await attempt(rig, "a")).toBe("accepted-unverified rehearsal");
  expect(rig.posts).toEqual([]);
});

test("writing is blocked after a stored write count is damaged, until a person arms writing again", async () => {
  const damagedKeys = async (set: string) => (set === "command-wear" ? ["main/10042"] : []);
  const rig = await testRig({ around: (store) => ({ ...store, damagedKeys }) });
  expect(await attempt(rig, "a")).toBe(NOT_ARMED);
  expect(rig.commands.notices()[0]).toContain("were damaged in the state");
  requestWriteArming(rig.folder);
  await rig.clock.advance(LOOK_MS);
  expect(await attempt(rig, "b")).toBe("confirmed");
  await rig.restart();
  expect(rig.commands.notices()).toEqual([]);
});

test("the kill switch is recorded in the audit log while the store fails to record an arming request", async () => {
  const rig = await testRig({
    isArmed: false,
    around: (store) => ({
      ...store,
      commit: async (change) => {
        if (auditStepOf(change) === "writing-armed") throw new Retryable("The disk is full.");
        return store.commit(change);
      },
    }),
  });
  requestWriteArming(rig.folder);
  rig.killSwitch.turnOn("a test", "2026-11-20T12:00:00Z");
  await rig.clock.advance(10_000);
  expect((await rig.audit()).map(({ step }) => step)).toContain("writing-stopped");
  expect(existsSync(join(rig.folder, ARM_WRITING_FILE))).toBe(true);
  await rig.restart();
  await rig.clock.advance(10_000);
  expect(rig.commands.status()).toMatchObject({ enabled: true, stopped: true });
});
