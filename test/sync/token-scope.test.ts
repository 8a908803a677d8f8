import { expect, test } from "vitest";
import type { Source } from "#src/engine/source/source.ts";
import { createTokenScope } from "#src/engine/sync/token-scope.ts";
import { createVirtualClock } from "../virtual-clock.ts";

const START = Date.parse("2026-11-22T12:00:00Z");
const MINUTE = 60_000;

function service(sites: readonly number[]) {
  const clock = createVirtualClock(START);
  const seen = { sites };
  const askedAt: number[] = [];
  const me = async () => {
    askedAt.push((clock.now() - START) / MINUTE);
    return { sites: seen.sites.map((id) => ({ id })), abilities: ["read:tags"] };
  };
  const scope = createTokenScope({ name: "main", me } as unknown as Source, clock);
  const said = (ids: readonly number[]) => ({
    sites: ids.map((id) => ({ id, displayName: `${id}` })),
    abilities: ["read:tags"],
  });
  return { clock, seen, askedAt, scope, said };
}

test("checks a site that the token lost before a restart every minute for an hour, and then every five minutes", async () => {
  const first = service([1, 2]);
  first.scope.learn(first.said([1, 2]));
  first.scope.learn(first.said([1]));
  const lost = first.scope.lost();
  expect(lost).toEqual({ 2: "2026-11-22T12:00:00.000Z" });

  const { askedAt, clock, scope, said, seen } = service([1]);
  scope.learn(said([1]));
  scope.restoreLostScope(lost);
  const end = new AbortController();
  const watching = scope.watch(end.signal);
  await clock.advance(120 * MINUTE);
  expect(askedAt.filter((minute) => minute <= 60).length).toBeGreaterThanOrEqual(59);
  expect(askedAt.filter((minute) => minute > 65).length).toBeLessThanOrEqual(12);
  seen.sites = [1, 2];
  await clock.advance(5 * MINUTE);
  expect(scope.sees(2)).toBe(true);
  expect(scope.lost()).toEqual({});
  const requests = askedAt.length;
  await clock.advance(60 * MINUTE);
  expect(askedAt.length).toBe(requests);
  end.abort();
  await watching.catch(() => undefined);
});

test("forgets a site a week after the token lost it, and replaces a time of the loss in the future by the current time", async () => {
  const { scope, said } = service([1]);
  scope.learn(said([1]));
  scope.restoreLostScope({ 2: "2026-11-15T11:59:00Z", 3: "2026-12-24T00:00:00Z", 4: "2026-11-22T11:00:00Z" });
  scope.learn(said([1]));
  expect(scope.lost()).toEqual({ 3: "2026-11-22T12:00:00.000Z", 4: "2026-11-22T11:00:00.000Z" });
});
