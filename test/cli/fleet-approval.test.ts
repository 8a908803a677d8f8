import { generateKeyPairSync } from "node:crypto";
import { copyFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, onTestFinished, test } from "vitest";
import { Config } from "#src/app/config/config.ts";
import { derivePublicKeyText } from "#src/engine/commands/approval/signature.ts";
import { createFleet } from "../member/fleet-harness.ts";
import { absent } from "../real-servers.ts";
import { createMachine, fleetOf, type Machine } from "./fleet-machine-harness.ts";
import type { Ended } from "./plenum.ts";

const SOURCES = ["east", "west"];

describe.skipIf(absent("postgres") || absent("mosquitto"))("the two-person rule of a fleet", () => {
  test("applies to every member, and an approval takes effect only on machines that have the approved file", async () => {
    const harness = await createFleet({ sources: SOURCES, isWritable: true });
    const { privateKey } = generateKeyPairSync("ed25519");
    const { allow } = Config.parse(harness.configuration).commands;
    const configured = (max: number, approval?: object) => ({
      ...harness.configuration,
      // Writing has most of the quota, so that no command waits for the quota.
      sources: Object.fromEntries(
        Object.entries(harness.configuration.sources as object).map(([name, source]) => [
          name,
          { ...source, read: [] },
        ]),
      ),
      commands: {
        ...{ enabled: true, read_back_after: "100ms", approval },
        allow: allow.map(({ source, site_id, tag_id }) => ({
          ...{ source, site_id, tag_id },
          ...{ type: "number", min: 0, max, min_interval: "0s" },
        })),
      },
    });
    const approval = { approvers: { anna: derivePublicKeyText(privateKey) } };
    const machines = ["here", "there"].map((name) => createMachine(harness, configured(100, approval), name));
    const stopAll = () => Promise.all(machines.map((machine) => machine.stop()));
    onTestFinished(() => void stopAll());
    const [here, there] = machines as [Machine, Machine];
    await Promise.all([here.start(), there.start()]);
    const sortedHolders = async () => (await fleetOf(harness)).sources.map(({ holder }) => holder).toSorted();
    await expect.poll(sortedHolders).toEqual(["here", "there"]);
    const { sources } = await fleetOf(harness);
    const hasUnknownTags = async () =>
      (await Promise.all(machines.map(({ one }) => one("status --json")))).some(({ stdout }) =>
        stdout.includes('"tags":0'),
      );
    await expect.poll(hasUnknownTags).toBe(false);

    async function write(machine: Machine, source: string, value: number): Promise<string> {
      const tag = harness.services.get(source)?.tags.at(-1);
      const { stderr, stdout }: Ended = await machine.one(`write ${tag} ${value} --source ${source} --json`);
      if (stdout === "") return stderr;
      const { outcome, reason } = JSON.parse(stdout) as { outcome: string; reason: string };
      return outcome === "rejected" ? reason : outcome;
    }
    const written = (value: number) =>
      Promise.all(
        machines.map((machine) => {
          const source = sources.find(({ holder }) => holder === machine.member)?.source ?? "";
          return write(machine, source, value);
        }),
      );
    for (const machine of machines) expect((await machine.one("writes arm")).code).toBe(0);
    await expect.poll(() => written(41)).toEqual(["unapproved", "unapproved"]);
    writeFileSync(join(here.folder, "anna.pem"), privateKey.export({ format: "pem", type: "pkcs8" }) as string);
    expect((await here.one("writes approve anna --key anna.pem")).code).toBe(0);
    await expect.poll(() => written(42)).toEqual(["confirmed", "unapproved"]);
    copyFileSync(join(here.folder, "approvals.json"), join(there.folder, "approvals.json"));
    await expect.poll(() => written(43)).toEqual(["confirmed", "confirmed"]);
    await stopAll();
    const aliveMembers = async () => (await fleetOf(harness)).members.filter(({ state }) => state === "alive");
    await expect.poll(aliveMembers).toEqual([]);
    here.configure("plenum.yaml", { commands: configured(1_000).commands });
    const freed = async () => (await fleetOf(harness)).sources.every(({ holder }) => holder === "here");
    await here.start();
    await expect.poll(freed).toBe(true);
    await expect.poll(() => write(here, "east", 500)).toBe("unapproved");
    for (const { simulator } of harness.services.values())
      expect(simulator.truth.writes().map(({ value }) => value)).not.toContain(500);
  });
});
