import { expect, test } from "vitest";
import { describeSourceHolder, memberUrl } from "#src/scale/fleet/fleet-status.ts";

const known = { name: "b", host: "machine-2", page: "http://10.0.0.2:9850" };
const members = [{ name: "a" }, known].map((each) => ({
  ...{ host: "machine-1", page: "", version: "0.1.0", state: "alive" as const, unable: [], unreached: [] },
  ...{ startedAt: "", seenAt: "", isDraining: false, sources: 1, digest: "" },
  ...each,
}));
const sources = [
  { source: "north", holder: "b" },
  { source: "south", holder: null },
  { source: "west", holder: "a" },
].map((each) => ({ ...each, epoch: 1, since: null, reason: null }));
const fleet = { self: "a", members, sources };

test("describeHolder returns the member that holds a source, and its status page", () => {
  expect(describeSourceHolder("north", fleet)).toEqual({
    message: "The source north is held by the member b of the fleet, on machine-2 (http://10.0.0.2:9850): ask there.",
    holder: { name: "b", page: "http://10.0.0.2:9850" },
  });
  expect(describeSourceHolder("south", fleet)).toEqual({
    message: "No member of the fleet holds the source south just now.",
    holder: null,
  });
  expect(describeSourceHolder("west", fleet).message).toBe("The source west is being started by this member, a.");
});

test("memberPage returns only an address that the caller can open", () => {
  const page = (address: string, here: string) => memberUrl({ host: "machine-2", page: address }, here);
  expect(page("http://10.0.0.2:9850", "machine-1")).toBe("http://10.0.0.2:9850");
  expect(page("http://0.0.0.0:9850", "machine-1")).toBe("http://machine-2:9850");
  expect(page("http://[::]:9850", "machine-1")).toBe("http://machine-2:9850");
  for (const loopback of ["http://127.0.0.1:9850", "http://[::1]:9850", "http://localhost:9850"]) {
    expect(page(loopback, "machine-1"), loopback).toBe("");
    expect(page(loopback, "machine-2"), loopback).toBe(loopback);
  }
  expect(page("", "machine-2")).toBe("");
});
