import { expect, onTestFinished, test } from "vitest";
import { startStub } from "../connectors/stub-server.ts";
import { simulatedServer, workplace } from "./plenum.ts";

test("a worker killed between two responses of a webhook repeats one event, not the batch", async () => {
  const service = await simulatedServer();
  const stub = await startStub();
  onTestFinished(() => stub.stop());
  stub.answer = () => (stub.seen.length < 12 ? { status: 204 } : null);
  const place = workplace(service.url);
  place.configure({
    sinks: {
      hook: {
        webhook: { url: `${stub.url}/hook`, unsigned: true, allow_networks: ["127.0.0.0/8"] },
        from: "beginning",
      },
    },
  });
  const ids = () => stub.seen.map(({ headers }) => headers["webhook-id"]);
  const first = place.start("run");
  await expect.poll(() => ids().length, { timeout: 30_000 }).toBe(13);
  first.signal("SIGKILL");
  await first.ended;

  stub.answer = () => ({ status: 204 });
  const second = place.start("run");
  await expect.poll(() => ids().length, { timeout: 30_000 }).toBeGreaterThan(30);
  second.signal("SIGTERM");
  await second.ended;
  const all = ids();
  expect(all[13]).toBe(all[12]);
  expect(all.length - new Set(all).size).toBe(1);
}, 90_000);
