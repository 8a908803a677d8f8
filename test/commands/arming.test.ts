import { existsSync, renameSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { Retryable } from "#src/core/errors/errors.ts";
import { ARM_FILE, requestArming } from "#src/engine/commands/arming.ts";
import type { Rig } from "./rig.ts";
import { TAG, testRig } from "./test-rig.ts";

const tag = TAG;

const LOOK_MS = 2_000;

async function unarmed(config: { readonly rehearsal?: boolean } = {}) {
  const rig = await testRig({ isArmed: false, config });
  async function reasonOf(id: string): Promise<string | null | undefined> {
    await rig.send({ id, tag, value: 22 });
    await rig.clock.advance(100_000);
    return (await rig.result(id))?.reason;
  }
  return { rig, tag, reasonOf };
}

test("writing is armed within 2 s after the worker's user creates the request file, with one audit record", async () => {
  const { rig, reasonOf } = await unarmed();
  expect(await reasonOf("a")).toBe("not-armed");
  expect(rig.commands.notices()).toEqual([expect.stringContaining("run plenum writes arm once")]);
  requestArming(rig.folder);
  await rig.clock.advance(LOOK_MS);
  expect(await reasonOf("b")).toBeNull();
  expect(rig.commands.notices()).toEqual([]);
  expect(existsSync(join(rig.folder, ARM_FILE))).toBe(false);
  expect((await rig.audit()).filter(({ step }) => step === "writing-armed")).toHaveLength(1);
});

test("writing stays armed over a restart", async () => {
  const { rig, reasonOf } = await unarmed();
  requestArming(rig.folder);
  await rig.clock.advance(LOOK_MS);
  await rig.restart();
  expect(await reasonOf("a")).toBeNull();
});

describe("writing stays unarmed when the request file", () => {
  test("is a link", async () => {
    const { rig, reasonOf } = await unarmed();
    const elsewhere = join(rig.folder, "elsewhere");
    writeFileSync(elsewhere, "");
    symlinkSync(elsewhere, join(rig.folder, ARM_FILE));
    await rig.clock.advance(LOOK_MS);
    expect(await reasonOf("a")).toBe("not-armed");
  });

  test("has another name", async () => {
    const { rig, reasonOf } = await unarmed();
    requestArming(rig.folder);
    renameSync(join(rig.folder, ARM_FILE), join(rig.folder, `${ARM_FILE}.txt`));
    await rig.clock.advance(LOOK_MS);
    expect(await reasonOf("a")).toBe("not-armed");
  });
});

test("a rehearsal needs no arming", async () => {
  const { rig, reasonOf } = await unarmed({ rehearsal: true });
  expect(await reasonOf("a")).toBe("rehearsal");
  expect(rig.posts).toEqual([]);
});

test("writing is closed after a write count is damaged, until writing is armed again", async () => {
  const damagedKeys = async (set: string) => (set === "command-wear" ? ["main/10042"] : []);
  const rig = await testRig({ around: (store) => ({ ...store, damagedKeys }) });
  await rig.send({ id: "a", tag, value: 21 });
  await rig.clock.advance(100_000);
  expect(await rig.result("a")).toMatchObject({ outcome: "rejected", reason: "not-armed" });
  expect(rig.commands.notices()[0]).toContain("was damaged in the state");
  requestArming(rig.folder);
  await rig.clock.advance(LOOK_MS);
  await rig.send({ id: "b", tag, value: 21 });
  await rig.clock.advance(100_000);
  expect((await rig.result("b"))?.outcome).toBe("confirmed");
  await rig.restart();
  expect(rig.commands.notices()).toEqual([]);
});

test("the kill switch is audited while the store cannot record the arming request", async () => {
  const isArming = ({ records = [] }: Parameters<Rig["store"]["commit"]>[0]) =>
    records.some(({ body }) => (body as { readonly step?: string }).step === "writing-armed");
  const rig = await testRig({
    isArmed: false,
    around: (store) => ({
      ...store,
      commit: async (change) => {
        if (isArming(change)) throw new Retryable("The disk is full.");
        return store.commit(change);
      },
    }),
  });
  requestArming(rig.folder);
  rig.killSwitch.throwIt("a test", "2026-11-20T12:00:00Z");
  await rig.clock.advance(10_000);
  expect((await rig.audit()).map(({ step }) => step)).toContain("writing-stopped");
  expect(existsSync(join(rig.folder, ARM_FILE))).toBe(true);
  await rig.restart();
  await rig.clock.advance(10_000);
  expect(rig.commands.status()).toMatchObject({ enabled: true, stopped: true });
});
