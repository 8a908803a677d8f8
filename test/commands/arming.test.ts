import { existsSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { Retryable } from "#src/core/errors/errors.ts";
import { ARM_WRITING_FILE, requestWriteArming } from "#src/engine/commands/write-arming.ts";
import { auditStepOf, type Harness } from "./command-harness.ts";
import { openHarness, TAG as tag } from "./test-harness.ts";

const LOOK_MS = 2_000;

const NOT_ARMED = "rejected not-armed";
const attempt = (harness: Harness, id: string) => harness.outcomeOf({ id, tag, value: 22 }, {}, 100_000);

test("writing is armed within 2 s after the request file is created, and stays armed over a restart", async () => {
  const harness = await openHarness({ isArmed: false });
  expect(await attempt(harness, "a")).toBe(NOT_ARMED);
  expect(harness.commands.notices()).toEqual([expect.stringContaining("run plenum writes arm once")]);
  requestWriteArming(harness.folder);
  await harness.clock.advance(LOOK_MS);
  expect(await attempt(harness, "b")).toBe("confirmed");
  expect(harness.commands.notices()).toEqual([]);
  expect(existsSync(join(harness.folder, ARM_WRITING_FILE))).toBe(false);
  expect((await harness.audit()).filter(({ step }) => step === "writing-armed")).toHaveLength(1);
  await harness.restart();
  expect(await attempt(harness, "c")).toBe("confirmed");
});

test.each([
  ["a link", (file: string) => symlinkSync(`${file}.target`, file)],
  ["a file with another name", (file: string) => writeFileSync(`${file}.txt`, "")],
])("writing stays unarmed when the file that requests arming is %s", async (_, request) => {
  const harness = await openHarness({ isArmed: false });
  const file = join(harness.folder, ARM_WRITING_FILE);
  writeFileSync(`${file}.target`, "");
  request(file);
  await harness.clock.advance(LOOK_MS);
  expect(await attempt(harness, "a")).toBe(NOT_ARMED);
});

test("a rehearsal of a command works while writing is not armed", async () => {
  const harness = await openHarness({ isArmed: false, config: { rehearsal: true } });
  expect(await attempt(harness, "a")).toBe("accepted-unverified rehearsal");
  expect(harness.posts).toEqual([]);
});

test("writing is blocked after a stored write count is damaged, until a person arms writing again", async () => {
  const damagedKeys = async (set: string) => (set === "command-wear" ? ["main/10042"] : []);
  const harness = await openHarness({ around: (store) => ({ ...store, damagedKeys }) });
  expect(await attempt(harness, "a")).toBe(NOT_ARMED);
  expect(harness.commands.notices()[0]).toContain("were damaged in the state");
  requestWriteArming(harness.folder);
  await harness.clock.advance(LOOK_MS);
  expect(await attempt(harness, "b")).toBe("confirmed");
  await harness.restart();
  expect(harness.commands.notices()).toEqual([]);
});

test("the kill switch is recorded in the audit log while the store fails to record an arming request", async () => {
  const harness = await openHarness({
    isArmed: false,
    around: (store) => ({
      ...store,
      commit: async (change) => {
        if (auditStepOf(change) === "writing-armed") throw new Retryable("The disk is full.");
        return store.commit(change);
      },
    }),
  });
  requestWriteArming(harness.folder);
  harness.killSwitch.turnOn("a test", "2026-11-20T12:00:00Z");
  await harness.clock.advance(10_000);
  expect((await harness.audit()).map(({ step }) => step)).toContain("writing-stopped");
  expect(existsSync(join(harness.folder, ARM_WRITING_FILE))).toBe(true);
  await harness.restart();
  await harness.clock.advance(10_000);
  expect(harness.commands.status()).toMatchObject({ enabled: true, stopped: true });
});
