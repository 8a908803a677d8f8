import { expect, onTestFinished, test } from "vitest";
import { startPagerdutyStub } from "../receivers/webhook-stubs.ts";
import { openHarness, simulatedServer } from "./plenum.ts";

test("the alarm commands test a pager, send it the active alarms, and add, list, publish and end a silence", async () => {
  const service = await simulatedServer();
  const pager = await startPagerdutyStub();
  onTestFinished(() => pager.stop());
  const cli = openHarness(service.url);
  cli.configure({
    sinks: {
      pager: { webhook: pager.config, from: "state" },
      events: { stdout: {}, filter: { kinds: ["silence-*"] } },
    },
  });

  const sinkTest = await cli.plenum("sink", "test", "pager");
  expect([sinkTest.code, sinkTest.stderr.trim().split("\n")]).toEqual([0, ["opened", "changed", "closed"]]);
  expect(sinkTest.stdout).toBe("pager: the test alarm was opened, changed and closed.\n");
  expect(pager.incidents().map(({ isOpen }) => isOpen)).toEqual([false]);
  expect(await cli.refusal("sink", "test", "events")).toBe(
    "78 events takes events as they are, so there is nothing to open and close. `plenum check` shows whether it can be reached.",
  );

  service.simulator.control.raiseAlarm({ siteId: 6, description: "Too cold" });
  const worker = cli.start("run");
  await worker.waitForOutput("started");
  // Recorded alarms may be active as well, by the time of day.
  await expect
    .poll(async () => {
      const active = await cli.json<readonly unknown[]>("alarms");
      const openIncidents = pager.incidents().filter(({ isOpen }) => isOpen);
      return active.length > 0 && openIncidents.length === active.length;
    })
    .toBe(true);
  expect(await cli.refusal("silence", "add", "--for", "1h", "--reason", "Repair")).toBe(
    "78 That would silence every alarm of every building. Say which with --source, --site, --priority, --name or --alarm; or --all, if it is meant.",
  );
  const added = "silence add --site 6 --priority B,C --for 1h --reason Repair";
  const { id } = await cli.json<{ readonly id: string }>(...added.split(" "));
  expect((await cli.plenum("silence")).stdout).toContain("of priority B, C of site 6");
  await expect.poll(() => worker.printed()).toContain('"type":"silence-started"');
  const silenceEnd = await cli.plenum("silence", "end", id);
  expect([silenceEnd.code, silenceEnd.stdout]).toEqual([0, `The silence ${id} is over.\n`]);
  await expect.poll(() => worker.printed()).toContain('"type":"silence-ended"');
  expect(await cli.refusal("silence", "end", id)).toBe(
    `78 There is no silence ${id}; \`plenum silence\` shows those that there are.`,
  );
  await worker.stop();
});
