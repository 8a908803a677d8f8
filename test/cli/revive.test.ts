import { expect, test } from "vitest";
import type { StubServer } from "../connectors/stub-server.ts";
import { startStubInTest } from "../receivers/receiver-helpers.ts";
import { localHook, simulatedServer, workplace } from "./plenum.ts";

const receiver = (status: number) => startStubInTest(() => ({ status }));

const idsAt = ({ seen }: StubServer) => seen.map(({ headers }) => headers["webhook-id"]);

test("a webhook that responded 410 resumes at the same url after `outbox revive`, and at another url without a command", async () => {
  const service = await simulatedServer();
  const [one, two] = [await receiver(410), await receiver(200)];
  const place = workplace(service.url);
  const configure = (url: string) =>
    place.configure({
      sinks: { hook: { webhook: localHook(`${url}/hook`), from: "beginning", filter: { kinds: ["site-added"] } } },
    });
  const ended = async () => (await place.json<{ ended: string | null; depth: number }[]>("outbox"))[0];
  configure(one.url);
  const worker = place.start("run");
  await worker.says("The sink has ended for good");
  expect((await ended())?.ended).toContain("answered 410");

  const first = idsAt(one)[0];
  const revived = await place.plenum("outbox", "revive", "hook");
  expect([revived.code, revived.stdout]).toEqual([0, expect.stringMatching(/^hook goes on, with [12] events/)]);
  await expect.poll(() => idsAt(one), { timeout: 20_000 }).toEqual([first, first]);
  await expect.poll(async () => (await ended())?.ended, { timeout: 20_000 }).toContain("answered 410");
  await worker.stop();

  configure(two.url);
  const elsewhere = place.start("run");
  await expect.poll(() => idsAt(two).length, { timeout: 20_000 }).toBe(2);
  expect(idsAt(two)[0]).toBe(first);
  await expect.poll(ended, { timeout: 20_000 }).toMatchObject({ ended: null, depth: 0 });
  expect(await place.json("outbox", "revive", "hook")).toEqual({ revived: false, waiting: 0 });
  await elsewhere.stop();
}, 90_000);
