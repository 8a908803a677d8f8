import type { Page } from "playwright-core";
import { describe, expect, test } from "vitest";
import { documentSet } from "#src/engine/store/store.ts";
import { reportPlan } from "#src/engine/sync/plan/report.ts";
import { syncSet } from "#src/engine/sync/stored-documents.ts";
import type { RunningWorkerState } from "#src/ui/status/status-report.ts";
import { absent } from "../real-servers.ts";
import { findings, pagesInBrowser } from "./page-in-browser.ts";
import { fillSource, LIVE_SOURCE, NOW, PLAN_FACTS, WORKER } from "./status-building.ts";

/** The page in a real browser, while something is unknown or the worker does not respond. */

const tile = (page: Page, name: string) => page.locator(".tile", { has: page.getByText(name, { exact: true }) });
const plainText = async (page: Page, selector: string) =>
  (await page.locator(selector).first().innerText()).replaceAll(/\s+/g, " ");

describe.skipIf(absent("chromium"))("the status page with incomplete data", () => {
  const openPage = pagesInBrowser();

  test("shows counts of lists that were never read as unknown, not as 0", async () => {
    const { page, open, complaints } = await openPage();
    await open();
    await expect.poll(() => tile(page, "Active alarms").locator(".figure").innerText()).toBe("unknown");
    expect(await tile(page, "Gateways online").innerText()).toMatch(/unknown[\s\S]*sites unknown · tags unknown/);
    expect(await tile(page, "Monitoring service").locator(".figure").innerText()).toBe("unknown");
    expect(await tile(page, "Values").innerText()).toContain("none was read yet");
    expect(await plainText(page, ".alarms")).toContain("Not all active alarms are known: the list was not read yet.");
    expect(await plainText(page, ".alarms")).not.toContain("The service lists none.");
    expect(await plainText(page, ".sinks")).toContain("? means unknown: the sink was never started.");
    expect(complaints).toEqual([]);
  });

  test("shows counts of unavailable lists as unknown, with the last known count", async () => {
    const { store, page, open } = await openPage();
    for (const name of ["north", "south"]) await fillSource(store, name, { tagNames: ["Supply"], alarms: [{}] });
    const unavailability = { since: NOW, reason: "forbidden: 403." };
    await store.commit({
      documents: [
        { set: syncSet("availability", "north"), put: [["feature/alarms", unavailability]] },
        { set: "health/north", put: [["health", { status: "unhealthy", time: NOW, askedAt: NOW }]] },
      ],
    });
    await open();
    await expect.poll(() => tile(page, "Active alarms").locator(".figure").innerText()).toBe("unknown");
    expect(await tile(page, "Active alarms").innerText()).toContain("north: 1 when last read, ");
    expect(await plainText(page, ".alarms")).toContain("Not all active alarms are known: 1 when last read, ");
    await expect.poll(() => page.locator(".alarms li").count()).toBe(2);
    expect(await page.locator(".sites tbody tr").first().innerText()).toContain("unknown");
    expect(await plainText(page, ".source")).toMatch(/health check of the service: unhealthy, at /);
  });

  test("shows when each polling job last succeeded", async () => {
    const { store, page, open } = await openPage();
    const poll = { lastSuccess: "2026-11-21T09:40:00.000Z", lastAttempt: NOW, problem: "alarms: no answer." };
    await store.commit({ documents: [{ set: documentSet("poll", "north"), put: [["alarms", poll]] }] });
    await open();
    await expect.poll(() => page.locator(".jobs tbody tr").first().innerText()).toMatch(/^alarms\s+20 min ago$/);
    expect(await page.locator(".jobs tbody tr").nth(1).innerText()).toBe("alarms: no answer.");
  });

  test("turns grey and remains readable when the worker accepts requests but never responds", async () => {
    const { clock, page, open, store } = await openPage();
    await fillSource(store, "north", { tagNames: ["Supply"] });
    await open();
    await expect.poll(() => page.locator(".pulse").innerText()).toBe("Plenum works");
    const age = () => page.locator(".values tbody tr td").last().innerText();
    await expect.poll(age).toMatch(/^\d s ago$/);
    // As a stopped process does: the connection stands, and nothing comes.
    await page.route("**/api/**", () => {});
    await expect.poll(() => page.locator(".pulse").innerText()).toBe("no response");
    expect(await plainText(page, ".gone")).toMatch(
      /^The worker has not responded since [\d:]+, \d+ s ago.*The page shows data from that time/,
    );
    expect(await page.locator("main.old").count()).toBe(1);
    expect(await page.evaluate("getComputedStyle(document.querySelector('.columns')).filter")).toBe("grayscale(1)");
    expect(await findings(page)).toEqual([]);
    // The title follows what is shown, and not in the same moment.
    await expect.poll(() => page.title()).toBe("✕ no response – Plenum");
    const earlierAge = Number.parseInt(await age(), 10);
    await expect.poll(async () => Number.parseInt(await age(), 10)).toBeGreaterThan(earlierAge + 2);
    await clock.advance(1_000);
    await page.unroute("**/api/**");
    await expect.poll(() => page.locator(".pulse").innerText()).toBe("Plenum works");
    expect(await page.locator(".gone").count()).toBe(0);
  });

  test("marks the content as old when the time in the responses does not advance", async () => {
    // The clock of the building is virtual and does not advance, so each response repeats the same time.
    const { clock, page, open } = await openPage();
    await open();
    await expect.poll(() => page.locator(".pulse").innerText()).toBe("Plenum works");
    await expect.poll(() => page.locator(".pulse").innerText()).toBe("no response");
    expect(await plainText(page, ".gone")).toMatch(/^The worker has sent an unchanged time since /);
    await clock.advance(15_000);
    await expect.poll(() => page.locator(".pulse").innerText()).toBe("Plenum works");
  });

  test("shows a separate request quota for reads, writes and history when the service has separate quotas", async () => {
    const [allowance] = LIVE_SOURCE.quota?.buckets ?? [];
    if (allowance === undefined) throw new Error("no allowance");
    const allowances = ["read", "write", "history"].map((name) => ({ ...allowance, name }));
    const liveParts: RunningWorkerState = {
      ...WORKER,
      source: () => ({ ...LIVE_SOURCE, quota: { buckets: allowances, heldUntilMs: null } }),
    };
    const { page, open } = await openPage(1280, liveParts);
    await open();
    const bars = page.locator(".source").first().locator(".allowance");
    await expect.poll(() => bars.count()).toBe(3);
    for (const [n, name] of ["read", "write", "history"].entries()) {
      expect(await bars.nth(n).locator("p").innerText()).toMatch(new RegExp(`^${name}\\s+7 of 20 requests`));
      expect(await bars.nth(n).locator(".slots").getAttribute("aria-label")).toContain(name);
    }
  });

  test("reports that values are older than their target interval even if the read plan fits the quota", async () => {
    const [comfort, meters] = PLAN_FACTS.classes;
    if (comfort === undefined || meters === undefined) throw new Error("no classes");
    const planFacts = { ...PLAN_FACTS, classes: [{ ...comfort, valueAgeMs: 78_000 }, meters] };
    const source = () => ({ ...LIVE_SOURCE, plan: async () => reportPlan(planFacts) });
    const { page, open } = await openPage(1280, { ...WORKER, source });
    await open();
    await expect
      .poll(() => plainText(page, ".plan"))
      .toContain(
        "It fits: the target intervals need 45 % of the available requests. Measured values were older than their target: comfort 78 s instead of 60 s.",
      );
  });
});
