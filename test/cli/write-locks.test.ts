import { expect, test } from "vitest";
import { servedHarness, WRITING, waitForInventory } from "./plenum.ts";

test("plenum writes lock rejects other senders' commands until plenum writes unlock", async () => {
  const { cli } = await servedHarness();
  cli.configure({ commands: WRITING });
  const lockTag = ["writes", "lock", "--tag", "10169", "--owner", "anna", "--reason", "Repair of the valve", "--for"];
  expect(await cli.refusal(...lockTag, "4h")).toMatch(/^(1|75|78) /);
  const worker = await cli.run("--arm-writing");
  await waitForInventory(cli);
  for (const [args, message] of [
    [["writes", "lock", "--owner", "anna", "--reason", "x", "--for", "4h"], /Name one of --tag, --system and --site/],
    [["writes", "lock", "--site", "6", "--owner", "anna", "--reason", "x"], /either --for or --until/],
  ] as const)
    expect(await cli.refusal(...args)).toMatch(message);
  const locked = await cli.plenum(...lockTag, "4h");
  expect([locked.code, locked.stdout]).toEqual([0, expect.stringMatching(/^Tag 10169 is locked by anna until /)]);
  expect((await cli.plenum("writes")).stdout).toBe(locked.stdout);
  expect((await cli.plenum("status")).stdout).toMatch(/^writing: 1 active lock, next end .*\(in [34] h\);/m);
  const rejected = await cli.plenum("write", "10169", "75");
  expect([rejected.code, rejected.stdout]).toEqual([
    1,
    expect.stringMatching(/^rejected \(locked\): Tag 10169 is locked/),
  ]);
  expect((await cli.plenum("writes", "unlock", "--tag", "10169")).code).toBe(0);
  expect((await cli.plenum("writes")).stdout).toBe("There is no write lock.\n");
  expect((await cli.plenum("status")).stdout).not.toContain("active lock");
  expect((await cli.plenum("write", "10169", "75")).code).toBe(0);
  await worker.stop();
  expect((await cli.plenum("audit", "show", "--kind", "writing-*")).stdout).toMatch(
    /writing-locked.*\n.*writing-unlocked/,
  );
});
