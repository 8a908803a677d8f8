import { readdirSync } from "node:fs";
import { tmpdir } from "node:os";
import { describe, expect, test } from "vitest";
import { findPostgresFolder } from "#src/cli/demo/start-postgres.ts";
import type { FleetStatus } from "#src/scale/fleet/fleet-status.ts";
import { absent } from "../real-servers.ts";
import { workplace } from "./plenum.ts";

function parseMembers(printed: string): readonly { readonly url: string; readonly pid: number }[] {
  return [...printed.matchAll(/member-\d +(http:\S+) +kill -9 (\d+)/g)].map(([, url = "", pid]) => ({
    url,
    pid: Number(pid),
  }));
}

const leftoverFolders = () => readdirSync(tmpdir()).filter((name) => /^plenum-(postgres|fleet)-/.test(name));

function runs(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch {
    return false;
  }
}

describe.skipIf(absent("postgres"))("plenum demo --fleet", { timeout: 240_000 }, () => {
  test("the demo of a fleet prints a takeover after a member is killed, and leaves no files behind", async () => {
    const cli = workplace("http://127.0.0.1:9");
    const demo = cli.start("demo", "--fleet", "2");
    const members = parseMembers(await demo.waitForOutput("Ctrl-C ends all of it"));
    expect(members).toHaveLength(2);
    const [first, second] = members;
    const fetchStatus = async (url = "") => (await (await fetch(`${url}/api/fleet`)).json()) as FleetStatus;
    const holderNames = async () => new Set((await fetchStatus(second?.url)).sources.map(({ holder }) => holder));
    await expect.poll(holderNames, { timeout: 60_000 }).toEqual(new Set(["member-1", "member-2"]));
    process.kill(first?.pid ?? 0, "SIGKILL");
    await demo.waitForOutput("member-1 ended (SIGKILL)");
    await expect.poll(holderNames, { timeout: 60_000 }).toEqual(new Set(["member-2"]));
    await demo.waitForOutput("member-1 → member-2  (its member no longer reports)");
    const fleetOutput = await cli.plenum("fleet", "--demo", "--json");
    expect([fleetOutput.code, fleetOutput.stdout]).toEqual([0, expect.stringContaining('"lost"')]);
    demo.signal("SIGINT");
    const { code, stderr } = await demo.ended;
    expect([code, stderr]).toEqual([0, expect.stringContaining("Stopped; nothing of it is left.")]);
    expect([leftoverFolders(), members.filter(({ pid }) => runs(pid))]).toEqual([[], []]);
  });

  test("the demo of a fleet rejects a wrong number of members, and names a missing package in one line", async () => {
    const cli = workplace("http://127.0.0.1:9");
    expect(await cli.refusal("demo", "--fleet", "many")).toMatch(/^78 .*1 to 9 members, not many/);
    expect(leftoverFolders()).toEqual([]);
    expect(() => findPostgresFolder([cli.folder])).toThrow("A fleet needs PostgreSQL, and none is installed here.");
  });
});
