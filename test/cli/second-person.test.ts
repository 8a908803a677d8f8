import { generateKeyPairSync } from "node:crypto";
import { writeFileSync } from "node:fs";
import { expect, onTestFinished, test } from "vitest";
import { derivePublicKeyText } from "#src/engine/commands/approval/signature.ts";
import { observe } from "../connectors/mqtt/observer.ts";
import { absent, startMosquitto } from "../real-servers.ts";
import {
  type Ended,
  type Harness,
  openHarness,
  servedHarness,
  simulatedServer,
  WRITING,
  waitForInventory,
} from "./plenum.ts";

function createKey(cli: Harness, name: string): string {
  const { privateKey } = generateKeyPairSync("ed25519");
  writeFileSync(cli.path(`${name}.pem`), privateKey.export({ format: "pem", type: "pkcs8" }));
  return derivePublicKeyText(privateKey);
}

const data = (ended: Ended): unknown => JSON.parse(ended.stdout);
const [TAG] = WRITING.allow;

test("plenum writes approval lists changed write rules, plenum writes approve approves the rules with a key, and the running worker then writes", async () => {
  const { service, cli } = await servedHarness();
  const approval = { approvers: { anna: createKey(cli, "anna") } };
  createKey(cli, "mallory");
  const commands = { ...WRITING, approval };
  cli.configure({ commands });
  const checkOutput = await cli.plenum("check");
  expect([checkOutput.code, checkOutput.stdout]).toEqual([78, expect.stringContaining("it is not approved yet")]);
  const worker = await cli.run();
  await waitForInventory(cli);
  expect(await cli.json("write", "10169", "75")).toMatchObject({ reason: "not-armed" });
  expect((await cli.plenum("status")).stdout).toContain("run plenum writes arm once");
  expect((await cli.plenum("writes", "arm")).code).toBe(0);
  await expect.poll(async () => (await cli.plenum("status")).stdout).not.toContain("run plenum writes arm once");
  expect(await cli.json("write", "10169", "75")).toMatchObject({ reason: "unapproved" });
  expect((await cli.plenum("status")).stdout).toContain("What may be written is not approved as it stands");
  expect(await cli.refusal("writes", "approve", "anna", "--key", "mallory.pem")).toBe(
    "1 mallory.pem is not the key of anna.",
  );
  expect(await cli.refusal("writes", "approve", "mallory", "--key", "mallory.pem")).toBe(
    "78 mallory is not one of the approvers.",
  );
  expect(await cli.refusal("writes", "approve", "anna", "--key", "nowhere.pem")).toBe(
    "78 The key nowhere.pem cannot be read.",
  );

  const approved = await cli.plenum("writes", "approve", "anna", "--key", "anna.pem");
  expect(approved.code).toBe(0);
  expect(approved.stdout).toContain("+ commands.allow./10169.max = 90");
  expect(approved.stdout).toContain("What may be written is approved as it stands.");
  expect(await cli.json("write", "10169", "75")).toMatchObject({ outcome: "confirmed" });
  expect((await cli.plenum("check")).code).toBe(0);
  cli.configure({ commands: { ...commands, allow: [{ ...TAG, max: 95 }] } });
  const changedApproval = await cli.json("writes", "approval");
  expect(changedApproval).toMatchObject({
    changes: ["- commands.allow./10169.max = 90", "+ commands.allow./10169.max = 95"],
    refusing: expect.stringContaining("1 more must approve it: anna") as string,
  });
  await worker.waitForOutput("commands.allow.10169.max: 90 → 95 (at once, as far as it is approved)");
  expect(await cli.json("write", "10169", "76")).toMatchObject({ reason: "unapproved" });
  expect((await cli.plenum("writes", "approve", "anna", "--key", "anna.pem")).code).toBe(0);
  expect(await cli.json("write", "10169", "76")).toMatchObject({ outcome: "confirmed" });
  cli.configure({ commands: { ...commands, approval: undefined } });
  const withoutApprovers = await cli.plenum("writes", "approval");
  expect(withoutApprovers.stdout).toContain("of those who approved until now must approve it: anna");
  await worker.stop();
  cli.configure({
    state: { folder: "elsewhere" },
    commands: { ...commands, approval: undefined, allow: [{ ...TAG, max: 1_000 }] },
  });
  const otherWorker = await cli.run();
  await waitForInventory(cli);
  expect(await cli.json("write", "10169", "500")).toMatchObject({ reason: "not-armed" });
  await otherWorker.stop();
  expect(service.simulator.truth.writes().map(({ value }) => value)).toEqual([75, 76]);
});

test("a second person confirms an MQTT command on the command line, and a command of the command line over MQTT", async (context) => {
  if (absent("mosquitto")) return context.skip();
  const [service, broker] = await Promise.all([simulatedServer(), startMosquitto()]);
  onTestFinished(() => broker.stop());
  const cli = openHarness(service.url);
  cli.configure({
    sinks: { broker: { mqtt: { url: broker.url, commands: { enabled: true } } } },
    commands: { ...WRITING, allow: [{ ...TAG, second_person: true }] },
  });
  const worker = await cli.run("--arm-writing");
  await waitForInventory(cli);
  const people = await observe(broker.url, ["plenum/main/+/tag/+/accepted", "plenum/status/commands"]);
  onTestFinished(() => people.leave());
  await people.until(({ topic, json }) => topic === "plenum/status/commands" && json.status === "online");
  const mqttCommand = JSON.stringify({ id: "set-7", value: 75, ttl_s: 120 });
  await people.publish("plenum/cmd/main/10169/set", mqttCommand);
  const acceptedMessage = await people.until(({ json }) => json.commandId === "set-7");
  expect(acceptedMessage.json).toMatchObject({ requested: 75, needsSecond: true });
  const wrongSecond = await cli.plenum("writes", "second", "set-7", "76", "--json");
  expect([wrongSecond.code, data(wrongSecond)]).toEqual([1, expect.objectContaining({ reason: "wrong-second" })]);
  const agreed = await cli.plenum("writes", "second", "set-7", "75", "--json");
  expect([agreed.code, data(agreed)]).toEqual([0, expect.objectContaining({ outcome: "confirmed" })]);
  const waitingWrite = cli.start("write", "10169", "80", "--id", "cli-1", "--within", "2m", "--json");
  await people.until(({ json }) => json.commandId === "cli-1");
  const ownSecond = await cli.plenum("writes", "second", "cli-1", "80");
  expect([ownSecond.code, ownSecond.stdout]).toEqual([1, expect.stringContaining("came from the command line too")]);
  await people.publish("plenum/cmd/main/second", JSON.stringify({ second: "cli-1", value: 80 }));
  const writeResult = await waitingWrite.ended;
  expect([writeResult.code, data(writeResult)]).toEqual([0, expect.objectContaining({ outcome: "confirmed" })]);
  await worker.stop();
  expect(service.simulator.truth.writes().map(({ value }) => value)).toEqual([75, 80]);
});
