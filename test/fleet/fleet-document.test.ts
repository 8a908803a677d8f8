import { expect, test } from "vitest";
import { createLog } from "#src/core/runtime/log.ts";
import { createFleetKillSwitch } from "#src/scale/fleet/kill-switch.ts";
import { createFleetDocument, openFleetDocument } from "#src/scale/fleet/shared-json-document.ts";
import { openFleetWritingGuards } from "#src/scale/fleet-tag-write-guards.ts";
import { testFolder } from "../test-resources.ts";
import { createVirtualClock } from "../virtual-clock.ts";
import { createMemoryTables } from "./memory-tables.ts";

const log = createLog({ level: "silent" });
const settled = () => new Promise((resolve) => setImmediate(resolve));

function fleet() {
  const clock = createVirtualClock(Date.UTC(2026, 5, 1), { ticks: 3 });
  const stateFolder = testFolder("machine");
  const documents = createMemoryTables();
  return {
    documents,
    async guards(approvals: string | null = null) {
      const connection = documents.connect();
      const { database } = connection;
      const killSwitch = createFleetKillSwitch({ database, clock, log });
      return {
        connection,
        ...(await openFleetWritingGuards({ database, killSwitch, stateFolder, approvalsFile: approvals, clock, log })),
      };
    },
  };
}

test("members share the stored approvers, each with its own file path, and a failed deletion leaves them stored", async () => {
  const { guards, documents } = fleet();
  const [one, two, none] = [await guards("/one/approvals"), await guards("/two/approvals"), await guards()];
  const pinned = { file: "/one/approvals" } as NonNullable<ReturnType<typeof one.approverStore.read>>;
  expect(one.approverStore.read()).toBeNull();
  const before = two.approverStore.version();
  await one.approverStore.write(pinned);
  await settled();
  expect(two.approverStore.read()).toEqual({ file: "/two/approvals" });
  expect(none.approverStore.read()).toEqual(pinned);
  expect(two.approverStore.version()).not.toBe(before);
  one.connection.state = "fails";
  await one.approverStore.write(null);
  expect(documents.bodies.size).toBe(1);
  one.connection.state = "well";
  await one.approverStore.write(null);
  expect(documents.bodies.size).toBe(0);
  await settled();
  expect(two.approverStore.read()).toBeNull();
});

test("a fleet document is read when it is opened, and a failed open leaves no listener", async () => {
  const { documents } = fleet();
  documents.bodies.set("key", '{"n":1}');
  const { database } = documents.connect();
  expect((await openFleetDocument<{ n: number }>({ database, key: "key", log })).read()).toEqual({ n: 1 });
  const away = documents.connect();
  away.state = "fails";
  await expect(openFleetDocument({ database: away.database, key: "key", log })).rejects.toThrow("away");
  away.state = "well";
  const requests = away.requests;
  await database.transact([database.notify("document key")]);
  await settled();
  expect(away.requests).toBe(requests);
});

test("a fleet document has the result of its latest query, in whatever order responses arrive", async () => {
  const { documents } = fleet();
  documents.bodies.set("key", '"old"');
  const { database } = documents.connect();
  const answers: (() => void)[] = [];
  const slow = {
    ...database,
    async query(...requests: Parameters<typeof database.query>) {
      const answer = await database.query(...requests);
      await new Promise<void>((resolve) => answers.push(resolve));
      return answer;
    },
  };
  const document = createFleetDocument<string>({ database: slow, key: "key", log });
  expect([document.read(), document.version()]).toEqual([null, ""]);
  const first = document.refresh();
  await settled();
  documents.bodies.set("key", '"new"');
  const second = document.refresh();
  await settled();
  answers[1]?.();
  await second;
  expect(document.read()).toBe("new");
  answers[0]?.();
  await first;
  expect(document.read()).toBe("new");

  const third = document.refresh();
  await settled();
  const written = document.write("written");
  await written;
  expect([document.read(), document.version()]).toEqual(["written", '"written"']);
  for (const answer of answers.slice(2)) answer();
  await third;
  expect(document.read()).toBe("written");
});
