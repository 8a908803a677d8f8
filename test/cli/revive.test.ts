import { expect, onTestFinished, test } from "vitest";
import { type StubServer, startStub } from "../connectors/stub-server.ts";
import { onlyLine, simulatedServer, workplace } from "./plenum.ts";

async function receiver(status: number): Promise<StubServer> {
  const stub = await startStub();
  onTestFinished(() => stub.stop());
  stub.answer = () => ({ status });
  return stub;
}

const idsAt = ({ seen }: StubServer) => seen.map(({ headers }) => headers["webhook-id"]);

test("a webhook that responded 410 resumes at the same url after `outbox revive`, and at another url without a command", async () => {
  const service = await simulatedServer();
  const [one, two] = [await receiver(410), await receiver(200)];
  const place = workplace(service.url);
  const configure = (url: string) =>
    place.configure({
      sinks: {
        hook: {
          webhook: { url: `${url}/hook`, unsigned: true, allow_networks: ["127.0.0.0/8"] },
          from: "beginning",
          filter: { kinds: ["site-added"] },
        },
      },
    });
  const ended = async () => {
    const { stdout } = await place.plenum("outbox", "--json");
    return (JSON.parse(stdout) as { ended: string | null; depth: number }[])[0];
  };
  configure(one.url);
  const worker = place.start("run");
  await worker.says("The sink has ended for good");
  expect((await ended())?.ended).toContain("answered 410");
  const stranger = await place.plenum("outbox", "revive", "hok");
  expect([stranger.code, onlyLine(stranger.stderr)]).toEqual([78, "There is no sink hok; known are: hook."]);

  const first = idsAt(one)[0];
  const revived = await place.plenum("outbox", "revive", "hook");
  expect([revived.code, revived.stdout]).toEqual([0, expect.stringMatching(/^hook goes on, with [12] events/)]);
  await expect.poll(() => idsAt(one), { timeout: 20_000 }).toEqual([first, first]);
  await expect.poll(async () => (await ended())?.ended, { timeout: 20_000 }).toContain("answered 410");
  worker.signal("SIGTERM");
  expect((await worker.ended).code).toBe(0);

  configure(two.url);
  const elsewhere = place.start("run");
  await expect.poll(() => idsAt(two).length, { timeout: 20_000 }).toBe(2);
  expect(idsAt(two)[0]).toBe(first);
  await expect.poll(ended, { timeout: 20_000 }).toMatchObject({ ended: null, depth: 0 });
  const idle = await place.plenum("outbox", "revive", "hook", "--json");
  expect(JSON.parse(idle.stdout)).toEqual({ revived: false, waiting: 0 });
  elsewhere.signal("SIGTERM");
  expect((await elsewhere.ended).code).toBe(0);
}, 90_000);
