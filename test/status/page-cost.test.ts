import type { CDPSession, Page } from "playwright-core";
import { describe, expect, test } from "vitest";
import { absent } from "../real-servers.ts";
import { samplePages } from "./sample-pages.ts";

/** Cost of the page in the browser: bytes until the first view, then processor time. */

const FIRST_VIEW_BYTES = 150_000;
/** Share of one core: three times the goal, because other work on the machine is partly counted as the page's. */
const SHARE_MAX = 0.03;
const WATCHED_MS = 15_000;
/** The page's own beat, in which it asks; what comes in one is drawn in one, but for what comes too late. */
const BEAT_MS = 2_000;
const LATE_DRAWINGS = 3;

/** Bytes as they came over the wire, heads included; `paths` by what was asked for. */
async function countTraffic(session: CDPSession) {
  const traffic = { bytes: 0, unchanged: 0 };
  await session.send("Network.enable");
  session.on("Network.loadingFinished", ({ encodedDataLength }) => {
    traffic.bytes += encodedDataLength;
  });
  session.on("Network.responseReceivedExtraInfo", ({ statusCode }) => {
    if (statusCode === 304) traffic.unchanged += 1;
  });
  return traffic;
}

/** Seconds that all processes of the page have had so far: drawing and network go along with the script. */
async function processorSeconds(page: Page): Promise<number> {
  const session = await page.context().browser()?.newBrowserCDPSession();
  const { processInfo } = (await session?.send("SystemInfo.getProcessInfo")) ?? { processInfo: [] };
  await session?.detach();
  return processInfo.filter(({ type }) => type === "renderer").reduce((sum, { cpuTime }) => sum + cpuTime, 0);
}

describe.skipIf(absent("chromium"))("the status page", () => {
  const openPage = samplePages();

  test("loads at most 150 kB for the first view, and gets only 304 responses when it is opened again", async () => {
    const { page, url } = await openPage();
    const session = await page.context().newCDPSession(page);
    const traffic = await countTraffic(session);
    await page.goto(url);
    await page.locator(".values tbody tr").nth(99).waitFor();
    await page.locator(".bars .day").first().waitFor();
    expect(traffic.bytes).toBeLessThan(FIRST_VIEW_BYTES);
    await page.reload();
    await page.locator(".values tbody tr").nth(99).waitFor();
    expect(traffic.unchanged).toBeGreaterThan(15);
  });

  test("uses at most 1 % of a core while it is open, and sends no requests while it is hidden", async () => {
    const { page, url, requests, clock } = await openPage();
    await page.goto(url);
    await page.locator(".values tbody tr").nth(99).waitFor();
    await page.waitForLoadState("networkidle");
    const session = await page.context().newCDPSession(page);
    await session.send("Performance.enable");
    const layouts = async () => {
      const { metrics } = await session.send("Performance.getMetrics");
      return metrics.find(({ name }) => name === "LayoutCount")?.value ?? Number.NaN;
    };
    const layoutsBefore = await layouts();
    const secondsBefore = await processorSeconds(page);
    for (let past = 0; past < WATCHED_MS; past += 1_000) {
      await clock.advance(1_000);
      await new Promise((done) => setTimeout(done, 1_000));
    }
    expect((1_000 * ((await processorSeconds(page)) - secondsBefore)) / WATCHED_MS).toBeLessThan(SHARE_MAX);
    expect((await layouts()) - layoutsBefore).toBeLessThanOrEqual(WATCHED_MS / BEAT_MS + LATE_DRAWINGS);
    await page.evaluate("Object.defineProperty(document, 'hidden', { value: true })");
    await page.evaluate("new Promise((done) => setTimeout(done, 100))");
    requests.length = 0;
    await page.evaluate("new Promise((done) => setTimeout(done, 9000))");
    expect(requests).toEqual([]);
  });
});
