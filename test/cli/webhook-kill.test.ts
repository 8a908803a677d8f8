import { expect, test } from "vitest";
import { startStubInTest } from "../receivers/receiver-helpers.ts";
import { localHook, simulatedServer, workplace } from "./plenum.ts";

test("a worker killed between two responses of a webhook repeats one event, not the batch", async () => {
  const service = await simulatedServer();
  const stub = await startStubInTest();
  stub.answer = () => (stub.seen.length < 12 ? { status: 204 } : null);
  const cli = workplace(service.url);
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
