import { execFileSync } from "node:child_process";
import { copyFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { createMqttCommands } from "#connectors/mqtt/commands.ts";
import { MqttConfig } from "#connectors/mqtt/config.ts";
import type { CommandMessage } from "#src/core/connector.ts";
import type { Event } from "#src/core/model/event.ts";
import { absent } from "../../real-servers.ts";
import { secretFile } from "../../receivers/receiver-helpers.ts";
import { sampleEvent, valueEvent } from "../../sample-events.ts";
import { closeAfterTest } from "../../test-resources.ts";
import { contextFor, never } from "../context.ts";
import { observeInTest } from "./observer.ts";
import { createTestSink, startMosquittoInTest } from "./test-sink.ts";

const example = join(import.meta.dirname, "../../../connectors/mqtt/acl.example");

async function guardedBroker(): Promise<string> {
  const server = await startMosquittoInTest({
    lines: (port, folder) => {
      const passwords = join(folder, "passwords");
      writeFileSync(passwords, "");
      for (const userName of ["plenum", "operator", "supervisor", "viewer", "stranger"])
        execFileSync("mosquitto_passwd", ["-b", passwords, userName, "pw"], { stdio: "ignore" });
      copyFileSync(example, join(folder, "acl"));
      return [
        `listener ${port} 127.0.0.1`,
        "allow_anonymous false",
        `password_file ${passwords}`,
        `acl_file ${join(folder, "acl")}`,
        "persistence false",
      ];
    },
  });
  return server.url;
}

const as = (url: string, username: string, filters: string | string[]) =>
  observeInTest(url, filters, { username, password: "pw" });

describe.skipIf(absent("mosquitto"))("the example access list for Mosquitto (acl.example)", () => {
  test("allows the worker to publish, the operator to send commands, and all other users only to read", async () => {
    const url = await guardedBroker();
    const login = { username: "plenum", password: secretFile("pw") };
    const config = MqttConfig.parse({ url, ...login, commands: { enabled: true } });
    const viewer = await as(url, "viewer", ["plenum/main/#", "plenum/status/#", "plenum/worker/#"]);
    const operator = await as(url, "operator", ["plenum/main/#", "plenum/reply/operator/#"]);
    const stranger = await as(url, "stranger", []);
    const sink = createTestSink(url, login);
    const commands = closeAfterTest(createMqttCommands(config, contextFor("guarded")));
    const arrived: CommandMessage[] = [];
    await commands.open(async (arrival) => void arrived.push(arrival), never());
    await sink.open(never());
    const sample = sampleEvent("command-result", { siteid: "1" });
    const result = { ...sample, data: { ...sample.data, replyTo: "plenum/reply/operator/1" } };
    const batch = [valueEvent(1), sampleEvent("alarm-raised"), sampleEvent("delivery-gap"), result];
    expect(await sink.write(batch, never())).toEqual({ rejected: [] });
    await viewer.until(({ topic }) => topic === "plenum/main/1/tag/10042/value");
    await viewer.until(({ topic }) => topic === "plenum/worker/_/event/delivery-gap");
    await operator.until(({ topic }) => topic === "plenum/reply/operator/1");
    const notAuthorized = { code: 135 };
    await expect(stranger.publish("plenum/cmd/main/1/set", "1")).rejects.toMatchObject(notAuthorized);
    await expect(viewer.publish("plenum/cmd/main/1/set", "2")).rejects.toMatchObject(notAuthorized);
    await expect(viewer.publish("plenum/main/1/tag/10042/value", "{}")).rejects.toMatchObject(notAuthorized);
    await expect(operator.publish("plenum/main/1/tag/10042/value", "{}")).rejects.toMatchObject(notAuthorized);
    await operator.publish("plenum/cmd/main/1/set", "3");
    await expect.poll(() => arrived.length).toBe(1);
    expect(arrived.map(({ payload }) => Buffer.from(payload).toString())).toEqual(["3"]);
  });

  test("allows the worker to publish topics with paths, and all other users only to read them", async () => {
    const url = await guardedBroker();
    const readers = await Promise.all(
      ["viewer", "operator", "supervisor"].map((userName) => as(url, userName, "plenum/b1/#")),
    );
    const sink = createTestSink(url, { username: "plenum", password: secretFile("pw") });
    await sink.open(never());
    const event = valueEvent(1);
    const writeWithPath = (path: string) =>
      sink.write([{ ...event, data: { ...event.data, tag: { ...event.data.tag, path } } } as Event], never());
    expect(await writeWithPath("b1/360.001/GT11")).toEqual({ rejected: [] });
    for (const reader of readers) {
      await reader.until(({ topic }) => topic === "plenum/b1/360.001/GT11/value");
      await expect(reader.publish("plenum/b1/360.001/GT11/value", "{}")).rejects.toMatchObject({ code: 135 });
    }
    expect(await writeWithPath("b2/360.001/GT11")).toMatchObject({ rejected: [{ index: 0 }] });
  });

  test("allows no user both to send a command and to approve it", async () => {
    const url = await guardedBroker();
    const worker = await as(url, "plenum", ["plenum/cmd/#"]);
    const operator = await as(url, "operator", []);
    const supervisor = await as(url, "supervisor", []);
    const viewer = await as(url, "viewer", []);
    const notAuthorized = { code: 135 };
    for (const topic of ["plenum/cmd/main/1/set", "plenum/cmd/main/set", "plenum/cmd/main/second/set"]) {
      await operator.publish(topic, "1");
      await expect(supervisor.publish(topic, "1"), topic).rejects.toMatchObject(notAuthorized);
    }
    await supervisor.publish("plenum/cmd/main/second", "1");
    for (const someone of [operator, viewer, worker])
      await expect(someone.publish("plenum/cmd/main/second", "2")).rejects.toMatchObject(notAuthorized);
    await worker.until(({ topic }) => topic === "plenum/cmd/main/second");
    expect(worker.heard).toHaveLength(4);
  });

  test("denies the worker all topics that it does not need", async () => {
    const url = await guardedBroker();
    const worker = await as(url, "plenum", ["plenum/cmd/#"]);
    for (const topic of ["plenum/cmd/main/1/set", "other/topic", "plenum/other/1", "homeassistant/x"])
      await expect(worker.publish(topic, "x"), topic).rejects.toMatchObject({ code: 135 });
    await worker.publish("plenum/main/1/tag/1/value", "x");
    const nosy = await as(url, "plenum", ["#"]);
    const operator = await as(url, "operator", []);
    await worker.publish("plenum/main/1/tag/1/value", "x");
    await operator.publish("plenum/cmd/main/1/set", "1");
    await nosy.until(({ topic }) => topic === "plenum/cmd/main/1/set");
    expect(nosy.heard.map(({ topic }) => topic)).toEqual(["plenum/cmd/main/1/set"]);
  });
});
