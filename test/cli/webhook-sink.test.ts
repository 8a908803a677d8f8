import { expect, test } from "vitest";
import { startStubInTest } from "../receivers/receiver-helpers.ts";
import { localHook, servedHarness } from "./plenum.ts";

test("a webhook that responded 410 gets its events again after plenum outbox revive", async () => {
  const { cli } = await servedHarness();
  const stub = await startStubInTest(() => ({ status: 410 }));
  const webhook = localHook(`${stub.url}/hook`);
  cli.configure({ sinks: { hook: { webhook, from: "beginning", filter: { kinds: ["site-added"] } } } });
  const webhookIds = () => stub.seen.map(({ headers }) => headers["webhook-id"]);
  const sinkState = async () => (await cli.json<{ ended: string | null; depth: number }[]>("outbox"))[0];
  const worker = cli.start("run");
  await worker.waitForOutput("The sink has ended for good");
  expect((await sinkState())?.ended).toContain("answered 410");
  stub.respond = () => ({ status: 200 });
  const revived = await cli.plenum("outbox", "revive", "hook");
  expect([revived.code, revived.stdout]).toEqual([0, expect.stringMatching(/^hook goes on, with [12] events/)]);
  await expect.poll(() => webhookIds().length).toBe(3);
  expect(webhookIds()[1]).toBe(webhookIds()[0]);
  await expect.poll(sinkState).toMatchObject({ ended: null, depth: 0 });
  expect(await cli.json("outbox", "revive", "hook")).toEqual({ revived: false, waiting: 0 });
  await worker.stop();
});
