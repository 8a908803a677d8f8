import type { Page } from "playwright-core";
import { describe, expect, test } from "vitest";
import type { ConfigurationState, ReloadReport } from "#src/core/model/config-change-report.ts";
import { Secret } from "#src/core/runtime/log.ts";
import { addSilence, getSilences, type Silence } from "#src/engine/silence/alarm-silences.ts";
import { reportPlan } from "#src/engine/sync/plan/report.ts";
import { absent } from "../real-servers.ts";
import { ALARM, sampleEvent } from "../sample-events.ts";
import { findings, OPERATOR, pagesInBrowser } from "./page-in-browser.ts";
import { fillSource, LIVE_SOURCE, NOW, PLAN_FACTS, WORKER } from "./status-building.ts";

const HOSTILE = "<img src=x onerror='window.broken = 1'><script>window.broken = 1</script>";
const PASSWORD = { password: new Secret(OPERATOR.password) };

/** Begins in an hour. */
const FUTURE_SILENCE: Silence = {
  ...{ id: "5f1e0c3a", source: null, site: null, priorities: ["B", "C"], name: "VS1*", alarm: null },
  ...{ from: "2026-11-21T11:00:00.000Z", to: "2026-11-21T12:00:00.000Z", reason: "Repair", madeBy: "cli" },
  isTold: false,
};

describe.skipIf(absent("chromium"))("the status page in a real browser", () => {
  const openPage = pagesInBrowser();
  const rows = (page: Page, panel: string) => page.locator(`.${panel} tbody tr`);

  test("shows sites, values, alarms, quota, sinks with their lag, and events", async () => {
    const { store, page, open, complaints, elsewhere } = await openPage();
    await store.outbox.register("lake", "now");
    await fillSource(store, "north", { tagNames: ["Supply", "Return"], alarms: [{}] });
    await store.commit({ events: [sampleEvent("alarm-raised")] });
    await open();
    await expect
      .poll(() => rows(page, "sites").allInnerTexts())
      .toEqual([expect.stringMatching(/north school\s+2\s+0 \/ 1\s+A 1/)]);
    await expect.poll(() => rows(page, "values").count()).toBe(2);
    expect(await rows(page, "values").allInnerTexts()).toEqual([
      expect.stringMatching(/10002\s+Return unreadable north school\s+–\s+°C/),
      expect.stringMatching(/10001\s+Supply north school\s+20\s+°C/),
    ]);
    expect(await page.locator(".alarms li b").innerText()).toBe(ALARM.trigger.displayName);
    expect(await page.locator(".slots").first().locator(".used").count()).toBe(7);
    expect(await page.locator(".allowance p").first().innerText()).toContain(
      "7 of 20 requests a minute in use · polls get 18 · waiting: 2 live",
    );
    expect(await rows(page, "sinks").innerText()).toMatch(/lake influxdb\s+idle\s+1\s/);
    await expect.poll(() => page.locator(".events li").innerText()).toContain("alarm-raised");
    expect(await page.locator(".pulse").innerText()).toBe("Plenum works");
    expect([complaints, elsewhere]).toEqual([[], []]);
  });

  test("shows the progress of the first inventory without a warning", async () => {
    const message = "Reading the building: 34 of 60 pages of tags, about 1 minute left.";
    const firstInventory = () => ({ pagesRead: 34, pagesTotal: 60, done: false, message });
    const source = () => ({ ...LIVE_SOURCE, firstInventory });
    const { page, open, complaints } = await openPage(1280, { ...WORKER, source });
    await open();
    await page.getByText(`north: ${message}`).waitFor();
    expect(await page.locator(".notices").getByText(message).count()).toBe(0);
    expect(complaints).toEqual([]);
  });

  test("shows changes of the configuration file, pending changes, and its errors", async () => {
    const configChange = (path: string, effect: "alone" | "restart") =>
      ({ path, before: "1m", after: HOSTILE, effect, how: "as it says" }) as const;
    const last: ReloadReport = {
      ...{ by: "file" as const, at: NOW, file: "plenum.yaml", isDryRun: false, refused: null, failures: [] },
      ...{ changes: [configChange("sources.main.read.rooms.every", "alone")], pending: [] },
    };
    const configuration = (): ConfigurationState => ({
      ...{ file: "plenum.yaml", last, pending: [configChange("state.folder", "restart")] },
      refused: ["plenum.yaml:3:1 This key is not known here."],
    });
    const { page, open, complaints } = await openPage(1280, { ...WORKER, configuration });
    await open();
    const panel = page.locator(".panel", { has: page.getByRole("heading", { name: "Configuration" }) });
    await expect.poll(() => panel.innerText()).toContain("plenum.yaml:3:1 This key is not known here.");
    const panelText = await panel.innerText();
    expect(panelText).toMatch(/These changes need a restart:\s+state\.folder\s+1m → <img src/);
    expect(panelText).toMatch(/Changed while the worker ran: .*sources\.main\.read\.rooms\.every/s);
    expect(await findings(page)).toEqual([]);
    expect(complaints).toEqual([]);
  });

  test("filters the list by search and site, and separates sites of two sources with the same id", async () => {
    const { store, page, open } = await openPage();
    await fillSource(store, "north", { tagNames: ["Supply", "Outdoor"], alarms: [{}] });
    const namesFile = { alias: "Supply air", path: "b1/360/GT11" };
    await fillSource(store, "south", { tagNames: ["Supply"], namesFile });
    await open();
    await expect.poll(() => rows(page, "values").count()).toBe(3);
    await page.locator(".sites").getByRole("link", { name: "south school" }).click();
    await expect.poll(() => page.locator(".head h2").innerText()).toBe("south school");
    await expect.poll(() => rows(page, "values").count()).toBe(1);
    expect(await page.locator(".alarms li").count()).toBe(0);
    await page.goBack();
    await expect.poll(() => rows(page, "values").count()).toBe(3);
    await page.getByLabel("site", { exact: true }).selectOption("south school");
    await expect.poll(() => rows(page, "values").count()).toBe(1);
    expect(new URL(page.url()).hash).toBe("#/?source=south&site=1");
    await page.getByLabel("site", { exact: true }).selectOption("all sites");
    await page.getByLabel("search tags").fill("outd");
    await expect.poll(() => rows(page, "values").allInnerTexts()).toEqual([expect.stringContaining("Outdoor")]);
    expect(new URL(page.url()).hash).toBe("#/?search=outd");
    await page.getByLabel("search tags").fill("b1/360");
    await expect
      .poll(() => rows(page, "values").allInnerTexts())
      .toEqual([expect.stringContaining("Supply Supply air")]);
    await page.getByLabel("search tags").fill("nothing like this");
    await expect.poll(() => page.locator(".values").innerText()).toContain("No tag matches.");
  });

  test("opens the alarm of the link that a receiver's message contains", async () => {
    const { server, store, page } = await openPage();
    const alarms = Array.from({ length: 120 }, (_, n) => ({ id: `${500_001 + n}` }));
    await fillSource(store, "north", { tagNames: ["Supply"], alarms });
    await page.goto(new URL("#alarm/north/500115", server.url()).href);
    const head = page.locator(".head");
    await expect.poll(() => head.locator("h2").innerText()).toBe(ALARM.trigger.displayName);
    expect(await head.innerText()).toContain("id 500115");
  });

  test("shows the read plan: value age of each read class, requests by purpose, time to read all tags, and backfill", async () => {
    const { page, open, complaints } = await openPage();
    await open();
    const plan = page.locator(".plan").first();
    await expect.poll(() => rows(page, "plan").count()).toBe(4);
    expect(await plan.locator("h2").innerText()).toMatch(/^Freshness\s+north, /);
    expect(await plan.locator("tbody tr").allInnerTexts()).toEqual([
      expect.stringMatching(/^comfort\s+100\s+60 s\s+60 s\s+58\.7 s\s+5\.0$/),
      expect.stringMatching(/^meters\s+900\s+15 min\s+15 min\s+–\s+3\.0$/),
    ]);
    const planText = (await plan.innerText()).replaceAll(/\s+/g, " ");
    expect(planText).toContain(
      "It fits: the target intervals need 45 % of the available requests. No measured value was older than its target.",
    );
    expect(planText).toContain("8.0 live values 40 %");
    expect(planText).toContain("10.3 spare: the backfill, then fresher values 52 %");
    expect(planText).toContain("reading every tag once takes 2.5 min");
    expect(planText).toMatch(/done in 2 h, at [\d:]+ \(1,234 requests left, 10\.3 a minute\)/);
    const barWidths = await plan
      .locator(".share i")
      .evaluateAll((parts) => parts.map((part) => part.getBoundingClientRect().width));
    expect((barWidths[0] ?? 0) / (barWidths[1] ?? 1)).toBeCloseTo(8 / 1.67, 0);
    expect(complaints).toEqual([]);
  });

  test.each([1280, 400])(
    "shows the smallest change that makes an overloaded read plan fit the quota, at a width of %i pixels",
    async (width) => {
      const planFacts = {
        ...PLAN_FACTS,
        classes: PLAN_FACTS.classes.map((each) => ({ ...each, tags: 600, allTagCount: 600 })),
        backfill: { requestsLeft: 7, requestsAtBest: 7, paused: true },
      };
      const source = () => ({ ...LIVE_SOURCE, plan: async () => reportPlan(planFacts) });
      const { page, open } = await openPage(width, { ...WORKER, source });
      await open();
      const plan = page.locator(".plan").first();
      await expect
        .poll(() => plan.locator(".change").innerText())
        .toMatch(
          /^The cheapest change\. Let the values of class comfort become 2m\S* old instead of 1m\.\s+read: \[\{name: comfort, every: 2m/,
        );
      expect(await plan.innerText()).toContain("paused, 7 requests left");
      expect(await page.locator(".pulse").innerText()).toBe("Plenum needs attention");
      expect(await page.evaluate("document.documentElement.scrollWidth - window.innerWidth")).toBeLessThanOrEqual(0);
    },
  );

  test("starts a silence in the row of an alarm and ends the silence in the panel", async () => {
    const { store, page, open, complaints, elsewhere } = await openPage(1280, WORKER, PASSWORD);
    const { trigger } = ALARM;
    const otherAlarm = { trigger: { ...trigger, displayName: "Fan stopped" } };
    await fillSource(store, "north", { tagNames: [], alarms: [{}, otherAlarm] });
    await open();
    const row = page.locator(".alarms li", { hasText: trigger.displayName });
    await row.getByRole("button", { name: /^silence/ }).click();
    expect(await row.getByRole("button", { name: "for 1 h" }).isDisabled()).toBe(true);
    await row.getByLabel("reason").fill(HOSTILE);
    await row.getByRole("button", { name: "for 4 h" }).click();
    await expect.poll(() => row.innerText()).toContain("silenced until ");
    expect(await row.innerText()).toContain(`by the status page: ${HOSTILE}`);
    expect(await row.getByRole("button").count()).toBe(0);
    expect(await page.locator(".alarms li", { hasText: "Fan stopped" }).innerText()).not.toContain("silenced");
    expect(await getSilences(store)).toEqual([
      expect.objectContaining({ source: "north", alarm: "500001", to: "2026-11-21T14:00:00.000Z" }),
    ]);
    const listedSilences = page.locator(".silences li");
    await expect.poll(() => listedSilences.count()).toBe(1);
    expect(await listedSilences.innerText()).toMatch(
      /^alarm Supply temperature low, north school of source north\s+until .*, in 4 h · by the status page\s/,
    );
    expect(await page.evaluate("window.broken")).toBeUndefined();
    expect(await page.locator("main :is(script, img)").count()).toBe(0);
    await listedSilences.getByRole("button").click();
    expect(await getSilences(store)).toHaveLength(1);
    await listedSilences.getByRole("button", { name: "click again to end" }).click();
    await expect.poll(() => page.locator(".silences").innerText()).toContain("None.");
    await expect.poll(() => row.innerText()).not.toContain("silenced until");
    expect(await getSilences(store)).toEqual([]);
    expect([complaints, elsewhere]).toEqual([[], []]);
  });

  test("starts a silence in the view of a site, and shows why a silence was rejected there", async () => {
    const { store, page, open } = await openPage(1280, WORKER, PASSWORD);
    await fillSource(store, "north", { tagNames: [], alarms: [{}] });
    await open();
    await page.locator(".sites").getByRole("link", { name: "north school" }).click();
    await page.getByRole("button", { name: "silence north school" }).click();
    await page.getByLabel("reason").fill("Repair");
    const maxSilences = Array.from({ length: 1_000 }, (_, n) => [`s${n}`, { ...FUTURE_SILENCE, id: `s${n}` }] as const);
    await store.commit({ documents: [{ set: "silence", put: maxSilences }] });
    await page.getByRole("button", { name: "for 1 h" }).click();
    await expect
      .poll(() => page.locator(".begin").innerText())
      .toContain("There are 1,000 silences, as many as there can be; end some first.");
    await store.commit({ documents: [{ set: "silence", remove: maxSilences.slice(1).map(([id]) => id) }] });
    // A silence of another site does not appear on this page.
    await addSilence(store, { ...FUTURE_SILENCE, id: "another-site", site: 2 });
    await page.getByRole("button", { name: "for 1 h" }).click();
    await expect.poll(() => page.locator(".alarms li").innerText()).toContain("silenced until ");
    await expect
      .poll(() => page.locator(".silences li b").allInnerTexts())
      .toEqual(["alarms of site north school of source north", "alarms named VS1* of priority B, C"]);
    expect(await page.locator(".silences li.coming").innerText()).toMatch(/from .* until .*, in 60 min · by cli/);
  });

  test("shows more than a hundred alarms after a click", async () => {
    const { store, page, open } = await openPage();
    const alarms = Array.from({ length: 126 }, (_, n) => ({ id: `${500_001 + n}` }));
    await fillSource(store, "north", { tagNames: [], alarms });
    await open();
    const listedAlarms = page.locator(".alarms li");
    await expect.poll(() => listedAlarms.count()).toBe(100);
    expect(await page.locator(".alarms").innerText()).toContain("and 26 more");
    await page.getByRole("button", { name: "show more" }).click();
    await expect.poll(() => listedAlarms.count()).toBe(126);
    expect(await page.locator(".alarms").innerText()).not.toMatch(/ more$/m);
  });

  test("shows commands instead of changes without a password", async () => {
    const { store, page, open, complaints } = await openPage();
    const trigger = { ...ALARM.trigger, displayName: "Fan stopped" };
    await fillSource(store, "north", { tagNames: [], alarms: [{ id: "5'; reboot", trigger }] });
    await addSilence(store, FUTURE_SILENCE);
    await open();
    const panel = page.locator(".silences");
    await expect.poll(() => panel.innerText()).toContain("Changes here need a password: set status.password");
    await panel.getByRole("button", { name: "end" }).click();
    expect(await panel.locator("li code").innerText()).toBe("plenum silence end 5f1e0c3a");
    const row = page.locator(".alarms li");
    await row.getByRole("button", { name: "silence Fan stopped" }).click();
    expect(await row.locator("code").innerText()).toBe(
      `plenum silence add --source=north --alarm='5'\\''; reboot' --for 4h --reason "…"`,
    );
    expect(await row.getByLabel("reason").count()).toBe(0);
    await page.setViewportSize({ width: 320, height: 900 });
    expect(await page.evaluate("document.documentElement.scrollWidth - window.innerWidth")).toBe(0);
    expect(await findings(page)).toEqual([]);
    expect(complaints).toEqual([]);
  });
});
