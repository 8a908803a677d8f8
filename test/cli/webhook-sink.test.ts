import { expect, test } from "vitest";
import type { StubServer } from "../connectors/stub-server.ts";
import { startStubInTest } from "../receivers/receiver-helpers.ts";
import { localHook, servedWorkplace } from "./plenum.ts";

test("a worker killed between two responses of a webhook repeats one event, not the batch", async () => {
  const { cli } = await servedWorkplace();
  const stub = await startStubInTest();
  stub.answer = () => (stub.seen.length < 12 ? { status: 204 } : null);
  cli.configure({ sinks: { hook: { webhook: localHook(`${stub.url}/hook`), from: "beginning" } } });
  const ids = () => stub.seen.map(({ headers }) => headers["webhook-id"]);
  const killedWorker = cli.start("run");
  await expect.poll(() => ids().length, { timeout: 30_000 }).toBe(13);
  await killedWorker.kill();
  stub.answer = () => ({ status: 204 });
  const secondWorker = cli.start("run");
  await expect.poll(() => ids().length, { timeout: 30_000 }).toBeGreaterThan(30);
  await secondWorker.stop();
  const all = ids();
  expect(all[13]).toBe(all[12]);
  expect(all.length - new Set(all).size).toBe(1);
}, 90_000);

const receiver = (status: number) => startStubInTest(() => ({ status }));

const webhookIds = ({ seen }: StubServer) => seen.map(({ headers }) => headers["webhook-id"]);

test("a webhook that responded 410 resumes at the same url after plenum outbox revive, and at another url without a command", async () => {
  const { cli } = await servedWorkplace();
  const [one, two] = [await receiver(410), await receiver(200)];
  const configure = (url: string) =>
    cli.configure({
      sinks: { hook: { webhook: localHook(`${url}/hook`), from: "beginning", filter: { kinds: ["site-added"] } } },
    });
  const sinkState = async () => (await cli.json<{ ended: string | null; depth: number }[]>("outbox"))[0];
  configure(one.url);
  const worker = cli.start("run");
  await worker.waitForOutput("The sink has ended for good");
  expect((await sinkState())?.ended).toContain("answered 410");
  const firstId = webhookIds(one)[0];
  const revived = await cli.plenum("outbox", "revive", "hook");
  expect([revived.code, revived.stdout]).toEqual([0, expect.stringMatching(/^hook goes on, with [12] events/)]);
  await expect.poll(() => webhookIds(one), { timeout: 20_000 }).toEqual([firstId, firstId]);
  await expect.poll(async () => (await sinkState())?.ended, { timeout: 20_000 }).toContain("answered 410");
  await worker.stop();
  configure(two.url);
  const secondWorker = cli.start("run");
  await expect.poll(() => webhookIds(two).length, { timeout: 20_000 }).toBe(2);
  expect(webhookIds(two)[0]).toBe(firstId);
  await expect.poll(sinkState, { timeout: 20_000 }).toMatchObject({ ended: null, depth: 0 });
  expect(await cli.json("outbox", "revive", "hook")).toEqual({ revived: false, waiting: 0 });
  await secondWorker.stop();
}, 90_000);
