import { expect, test } from "vitest";
import { onlyLine, QUIET_SITE, servedHarness } from "./plenum.ts";

test("plenum status distinguishes no worker, a running worker, and a worker that does not respond", async () => {
  const { cli } = await servedHarness(QUIET_SITE);
  expect(await cli.refusal("status", "--probe")).toBe("1 No worker is running on this state folder.");
  const worker = await cli.run();
  const completeSource = /^source main: 1 sites, 8 tags, .*, 1 of 1 gateways online, 0 active alarms$/m;
  await expect.poll(async () => (await cli.plenum("status")).stdout).toMatch(completeSource);
  const well = await cli.plenum("status");
  expect([well.code, well.stdout]).toEqual([0, expect.stringMatching(/^Running since /)]);
  for (const job of ["token", "sites", "alarms", "resolved_sweep", "gateways", "hosts", "systems", "tags"]) {
    expect(well.stdout).toMatch(
      new RegExp(`^ {2}job ${job}: last good poll 20\\S+ \\S+ [+-]\\d\\d:\\d\\d( \\([^)]+\\))?$`, "m"),
    );
  }

  worker.signal("SIGSTOP");
  const [silent, probe, read] = await Promise.all([
    cli.plenum("status"),
    cli.plenum("status", "--probe"),
    cli.plenum("read", "10169"),
  ]);
  const message =
    "A worker is there and does not answer within 5 s. It may be busy: try again. If that lasts, its log says what it does.";
  expect([silent.code, probe.code, read.code]).toEqual([75, 75, 75]);
  for (const { stderr } of [silent, probe, read]) expect(onlyLine(stderr)).toBe(message);
  expect(silent.stdout).toMatch(/^A worker is there and does not answer; this is what the state remembers\.\n/);
  expect(silent.stdout).toContain("quota: unknown, only a running worker counts it");
  const explained = await cli.plenum("explain", "10169");
  expect([explained.code, explained.stdout]).toEqual([
    0,
    expect.stringContaining("Next reading\n  Unknown: a worker is there and does not answer."),
  ]);
  expect(await cli.refusal("plan")).toBe(
    "0 A worker is there and does not answer within 5 s. What it measures is left out.",
  );

  worker.signal("SIGCONT");
  expect((await cli.plenum("status", "--probe")).code).toBe(0);
  await worker.kill();
  const statusAfterKill = await cli.plenum("status");
  expect([statusAfterKill.code, statusAfterKill.stdout]).toEqual([0, expect.stringMatching(/^No worker is running; /)]);
});

test("plenum status prints unknown counts instead of 0 for an empty state", async () => {
  const { cli } = await servedHarness();
  await cli.plenum("sites");
  const { code, stdout } = await cli.plenum("status");
  expect(code).toBe(0);
  expect(stdout).toMatch(
    /^source main: unknown sites \(never read\), unknown tags \(never read\), no value read yet, unknown gateways \(never read\), unknown active alarms \(never read\)$/m,
  );
  expect(stdout).toMatch(/^ {2}token: not known yet$/m);
  expect(stdout).toMatch(/^ {2}job alarms: last good poll never$/m);
  expect(stdout).toMatch(/^sink files: never started, lag unknown, dead letters unknown$/m);
});

test("plenum read rejects unknown tag ids without a request, and sends the request with --ask", async () => {
  const { service, cli } = await servedHarness(QUIET_SITE);
  expect(await cli.refusal("read", "10169", "77", "88")).toMatch(
    /^1 .*404.* The service refuses the 3 tags together: a single one may be the cause/,
  );

  const worker = await cli.run();
  const reads = () => service.simulator.truth.requests().filter(({ path }) => path.includes("/tags/read"));
  await expect.poll(async () => (await cli.plenum("status")).stdout).toMatch(/^source main: 1 sites, 8 tags/m);
  await worker.stop();
  const readsBefore = reads().length;
  expect(await cli.refusal("read", "10169", "77", "88")).toMatch(
    /^78 Tags 77, 88 are not among the 8 tags of main, listed at 20\S+ \S+ [+-]\d\d:\d\d( \([^)]+\))?; nothing was asked\. If the list is too old, add --ask\.$/,
  );
  expect(reads().length).toBe(readsBefore);
  expect(await cli.refusal("read", "10169", "77", "--ask")).toMatch(/^1 .*refuses the 2 tags/);
  expect((await cli.plenum("read", "10169")).code).toBe(0);
});
