// biome-ignore-all lint/suspicious/noTemplateCurlyInString: a hostile name that looks like a template.
import type { Page } from "playwright-core";
import { describe, expect, test } from "vitest";
import { addSilence } from "#src/engine/silence/alarm-silences.ts";
import { absent } from "../real-servers.ts";
import { findings } from "./page-in-browser.ts";
import { DEFAULT_RESPONSES, samplePages } from "./sample-pages.ts";
import * as samples from "./sample-responses.ts";
import { NOW } from "./status-building.ts";

const VIEW_ADDRESSES = {
  overview: "#/",
  tags: "#/tags",
  tag: "#/tag/north/10001",
  alarm: "#/alarm/north/500001",
  site: "#/site/north/1",
  sink: "#/sink/lake",
  source: "#/source/north",
  commands: "#/commands",
  fleet: "#/fleet",
};

const viewHeading = (page: Page) => page.locator(".head h2");
const tagNames = (page: Page) => page.locator(".values tbody tr td:nth-child(2) a:first-child");
const overflow = (page: Page) => page.evaluate("document.documentElement.scrollWidth - window.innerWidth");
/** Everything that the view asked for is there, the plot too. */
async function waitForView(page: Page, view: string): Promise<void> {
  await page.locator("main .panel").first().waitFor();
  if (["tag", "alarm", "sink", "source"].includes(view)) await page.locator(".uplot canvas").first().waitFor();
  else if (view !== "commands" && view !== "fleet") await tagNames(page).nth(20).waitFor();
}

describe.skipIf(absent("chromium"))("each view of the status page", () => {
  const openPage = samplePages();

  test.each(["light", "dark"] as const)(
    "has no accessibility finding in the %s scheme, and sends no request to another host",
    async (colorScheme) => {
      const { page, url, complaints, elsewhere } = await openPage();
      await page.emulateMedia({ colorScheme });
      for (const [view, hash] of Object.entries(VIEW_ADDRESSES)) {
        await page.goto(url + hash);
        await waitForView(page, view);
        // Another scheme has other colours, and nothing else.
        expect(await findings(page, colorScheme === "dark" ? ["color-contrast"] : undefined), view).toEqual([]);
      }
      expect([complaints, elsewhere]).toEqual([[], []]);
    },
  );

  test.each([320, 390, 1280, 3840])("fits a width of %i pixels with long names", async (width) => {
    const long = "563.001-RT601_Temperature_Corridor_West_Wing_".repeat(4);
    const longBrief = { ...samples.alarmBrief(0), name: long, site: long };
    const { page, store, url } = await openPage(width, {
      "/api/tags": (query) => samples.tagList(query, 300, [long]),
      "/api/tag": () =>
        samples.tagResponse("10001", { tag: { id: "10001", displayName: long, description: long, unit: "°C" } }),
      "/api/alarm": () => samples.alarmResponse({ brief: longBrief }),
      "/api/site": () =>
        samples.siteResponse({ displayName: long, systems: [{ id: "1", displayName: long, tags: 3 }] }),
      "/api/commands": () => [samples.commandRow(0, long)],
    });
    const silence = { source: null, site: null, priorities: null, name: long, alarm: null, isTold: false };
    const time = { from: NOW, to: "2026-11-21T12:00:00.000Z", reason: long, madeBy: long };
    await addSilence(store, { id: "s", ...silence, ...time });
    for (const [view, hash] of Object.entries(width < 390 ? { overview: VIEW_ADDRESSES.overview } : VIEW_ADDRESSES)) {
      await page.goto(url + hash);
      await waitForView(page, view);
      expect(await overflow(page), view).toBeLessThanOrEqual(0);
    }
  });

  test("shows names with HTML and scripts as text only", async () => {
    const evil = "<img src=x onerror='window.broken = 1'><script>window.broken = 1</script>${window.broken = 1}";
    const isFixed = (text: string) => /^(\d{4}-|\d+$|north$)/.test(text);
    /** Replaces all texts of a response, except times and ids. */
    const poison = (value: unknown): unknown => {
      if (typeof value === "string") return value.startsWith("http") ? null : isFixed(value) ? value : evil;
      if (Array.isArray(value)) return value.map(poison);
      if (typeof value !== "object" || value === null) return value;
      return Object.fromEntries(Object.entries(value).map(([key, inner]) => [key, poison(inner)]));
    };
    const { "/api/plot": _, "/api/alarm-days": __, ...responses } = DEFAULT_RESPONSES;
    const poisoned = Object.entries<(query: URLSearchParams) => unknown>({
      ...responses,
      "/api/tag": () => samples.tagResponse("10001"),
    }).map(([path, respond]) => [path, (query: URLSearchParams) => poison(respond(query))] as const);
    const { page, url, complaints } = await openPage(1280, Object.fromEntries(poisoned));
    for (const [view, hash] of Object.entries({ ...VIEW_ADDRESSES, evil: `#/tag/north/${encodeURIComponent(evil)}` })) {
      await page.goto(url + hash);
      await waitForView(page, view === "evil" ? "tag" : view);
      await expect.poll(() => page.locator("main").innerText(), { message: view }).toContain(evil.slice(0, 30));
      const otherElements = 'main :is(script, img, svg, iframe, link, base, style, math, a:not([href^="#/"]))';
      expect(await page.locator(otherElements).count(), view).toBe(0);
    }
    expect(await page.evaluate("window.broken")).toBeUndefined();
    expect(complaints).toEqual([]);
  });

  test("reports that the requested tag or alarm does not exist", async () => {
    const { page, url } = await openPage(1280, { "/api/tag": () => null, "/api/alarm": () => null });
    for (const objectKind of ["tag", "alarm"]) {
      await page.goto(`${url}#/${objectKind}/north/9`);
      await expect.poll(() => page.locator("main").innerText()).toContain(`There is no such ${objectKind}.`);
    }
  });
});

describe.skipIf(absent("chromium"))("the list of all tags", () => {
  const openPage = samplePages();

  test("searches 30,000 tags with one request per word, and shows 100 tags at a time", async () => {
    const { page, url, requests } = await openPage(1280, { "/api/tags": (query) => samples.tagList(query, 30_000) });
    await page.goto(`${url}#/tags`);
    await expect.poll(() => tagNames(page).count()).toBe(100);
    expect(await page.locator(".values h2").innerText()).toContain("1–100 of 30,000");
    requests.length = 0;
    // Within one moment of the page: a busy machine might take longer for a letter than the page waits for the next one.
    await page.getByLabel("search tags").evaluate((input) => {
      for (const typed of ["c", "co", "co2"]) {
        Object.assign(input, { value: typed });
        input.dispatchEvent(new Event("input", { bubbles: true }));
      }
    });
    await expect.poll(() => page.locator(".values h2").innerText()).toContain("1–100 of 6,000");
    expect(requests.filter((path) => /search=c(o)?(&|$)/.test(path))).toEqual([]);
    await page.getByRole("button", { name: "next 100" }).click();
    await expect.poll(() => page.locator(".values h2").innerText()).toContain("101–200 of 6,000");
    expect(new URL(page.url()).hash).toBe("#/tags?search=co2&page=1");
    await page.getByRole("button", { name: /^unreadable/ }).click();
    await expect.poll(() => page.locator(".values h2").innerText()).not.toContain("–");
    expect(await page.locator(".values tbody .mark").allInnerTexts()).toEqual(
      Array.from({ length: await tagNames(page).count() }, () => "unreadable"),
    );
  });

  test("can be sorted by its columns, and has the same search and order after a return from another view", async () => {
    const { page, url } = await openPage();
    await page.goto(`${url}#/tags`);
    await page.getByRole("button", { name: "value" }).click();
    await page.getByRole("button", { name: "value" }).click();
    await expect.poll(() => page.locator("th[aria-sort=descending]").innerText()).toContain("value");
    await page.getByLabel("search tags").fill("pressure");
    await expect.poll(() => page.locator(".values h2").innerText()).toContain("of 600");
    const firstName = await tagNames(page).first().innerText();
    await tagNames(page).first().click();
    await expect.poll(() => viewHeading(page).innerText()).toBe(firstName);
    await page.goBack();
    await expect.poll(() => tagNames(page).first().innerText()).toBe(firstName);
    expect(await page.getByLabel("search tags").inputValue()).toBe("pressure");
  });

  test("does not reorder rows under the pointer, and offers the new order as a button", async () => {
    let isTurned = false;
    const { page, url } = await openPage(1280, {
      "/api/tags": (query) => {
        const list = samples.tagList(query, 30);
        return isTurned ? { ...list, rows: list.rows.toReversed() } : list;
      },
    });
    await page.goto(`${url}#/tags`);
    await expect.poll(() => tagNames(page).count()).toBe(30);
    const initialNames = await tagNames(page).allInnerTexts();
    await tagNames(page).nth(3).hover();
    isTurned = true;
    await page.locator(".moved button").waitFor();
    expect(await tagNames(page).allInnerTexts()).toEqual(initialNames);
    await page.mouse.move(5, 5);
    await expect.poll(() => tagNames(page).allInnerTexts()).toEqual(initialNames.toReversed());
    expect(await page.locator(".moved button").count()).toBe(0);
    await tagNames(page).nth(2).focus();
    isTurned = false;
    await page.locator(".moved button").waitFor();
    expect(await tagNames(page).allInnerTexts()).toEqual(initialNames.toReversed());
    await page.locator(".moved button").dispatchEvent("click");
    await expect.poll(() => tagNames(page).allInnerTexts()).toEqual(initialNames);
  });
});

describe.skipIf(absent("chromium"))("a plot", () => {
  const openPage = samplePages();

  test("loads its library with the first view that needs a plot, from this host only", async () => {
    const { page, url, elsewhere } = await openPage();
    const loadedPaths: string[] = [];
    page.on("request", (request) => loadedPaths.push(new URL(request.url()).pathname));
    await page.goto(url);
    await waitForView(page, "overview");
    expect(loadedPaths.filter((path) => path.includes("uplot"))).toEqual([]);
    await tagNames(page).first().click();
    await page.locator(".uplot canvas").waitFor();
    expect(loadedPaths.filter((path) => path.includes("uplot"))).toEqual(["/uplot.mjs", "/uplot.css"]);
    expect(elsewhere).toEqual([]);
  });

  test("stores its time range in the address, and shows its points by keyboard", async () => {
    const { page, url, requests } = await openPage();
    await page.goto(`${url}#/tag/north/10001`);
    await page.getByRole("button", { name: "7 days" }).click();
    // Meanwhile the page may ask for other things as well.
    await expect.poll(() => requests.filter((each) => each.includes("span=7d"))).not.toEqual([]);
    expect(new URL(page.url()).hash).toBe("#/tag/north/10001?span=7d");
    await expect.poll(() => page.locator(".readout").innerText()).toMatch(/313 points, one for 30 min/);
    await page.locator(".canvas").focus();
    await page.keyboard.press("ArrowRight");
    await expect.poll(() => page.locator(".readout").innerText()).toMatch(/14 Nov .*°C\s+between/s);
    const firstReadout = await page.locator(".readout").innerText();
    await page.keyboard.press("ArrowRight");
    await expect.poll(() => page.locator(".readout").innerText()).not.toBe(firstReadout);
  });

  test("draws no line across a gap", async () => {
    const { page, url } = await openPage();
    await page.goto(`${url}#/tag/north/10001?span=24h`);
    await page.locator(".uplot canvas").waitFor();
    // From 45 % to 52 % of the time nothing is known: no drop of the line's colour may be there.
    const countDrawnPixels = (from: number, to: number) =>
      page.evaluate(`(() => {
        const canvas = document.querySelector(".uplot canvas");
        const over = document.querySelector(".u-over");
        const scale = canvas.width / canvas.getBoundingClientRect().width;
        const left = (over.offsetLeft + over.offsetWidth * ${from}) * scale;
        const width = over.offsetWidth * ${to - from} * scale;
        const { data } = canvas.getContext("2d").getImageData(left, over.offsetTop * scale, width, over.offsetHeight * scale);
        let count = 0;
        for (let n = 0; n < data.length; n += 4) if (data[n + 3] > 128 && data[n + 1] - data[n] > 60) count += 1;
        return count;
      })()`);
    expect(await countDrawnPixels(0.2, 0.4)).toBeGreaterThan(100);
    expect(await countDrawnPixels(0.46, 0.51)).toBe(0);
  });

  test("requests history on demand, and polls until the history has arrived", async () => {
    let isReplied = false;
    const { page, url } = await openPage(1280, {
      "/api/plot": (query) => {
        const plot = samples.plotResponse(query);
        return !isReplied || query.get("fetch") !== "1"
          ? plot
          : { ...plot, history: { state: "refused", why: "the token may not read history" } };
      },
    });
    await page.goto(`${url}#/tag/north/10001`);
    await page.getByRole("button", { name: "read the log" }).click();
    await expect.poll(() => page.locator(".curve").innerText()).toContain("Reading the log");
    isReplied = true;
    await expect
      .poll(() => page.locator(".curve").innerText())
      .toContain("The log could not be read: the token may not read history");
  });
});

describe.skipIf(absent("chromium"))("a change from the status page", () => {
  const openPage = samplePages();

  test("asks for confirmation of a write, and sends the write with the displayed value", async () => {
    const { page, url, ordered } = await openPage(1280, {}, () => ({ id: "cmd-77" }));
    await page.goto(`${url}#/tag/north/10001`);
    const writeForm = page.locator(".write");
    await writeForm.getByLabel("new value").fill("25");
    expect(await writeForm.getByRole("button", { name: "write …" }).isDisabled()).toBe(true);
    await writeForm.getByLabel("new value").fill("21,5");
    await page.keyboard.press("Enter");
    expect(await writeForm.innerText()).toContain(
      "Write 21.5 °C to 360.00000 RT601 Temperature Corridor? The current value is 20 °C.",
    );
    expect(ordered).toEqual([]);
    await writeForm.getByRole("button", { name: "write 21.5 °C" }).click();
    await expect.poll(() => writeForm.innerText()).toContain("as command cmd-77");
    expect(ordered).toEqual([{ path: "/api/write", body: { source: "north", tag: "10001", value: 21.5, expect: 20 } }]);
  });

  test("shows why writes are closed instead of the form, and no form for a tag outside the allow-list", async () => {
    const closed = "A viewer may look, and change nothing.";
    const limits = { type: "number", min: 16, max: 24, step: 2, closed } as const;
    const { page, url } = await openPage(1280, {
      "/api/tag": (query) => samples.tagResponse("10001", { writable: query.get("id") === "1" ? limits : null }),
    });
    await page.goto(`${url}#/tag/north/1`);
    await expect.poll(() => page.locator(".write").innerText()).toContain("A viewer may look, and change nothing.");
    expect(await page.locator(".write :is(input, button)").count()).toBe(0);
    await page.goto(`${url}#/tag/north/2`);
    await page.locator(".places").waitFor();
    await expect.poll(() => page.locator(".write").count()).toBe(0);
  });

  test("sends one or all dead letters again after a second click", async () => {
    const { page, url, ordered } = await openPage(1280, {}, () => ({ again: 5 }));
    await page.goto(`${url}#/sink/lake`);
    await page.getByRole("button", { name: "send again" }).first().click();
    expect(ordered).toEqual([]);
    await page.getByRole("button", { name: "click again" }).click();
    await expect.poll(() => ordered).toEqual([{ path: "/api/sink/retry", body: { name: "lake", ids: ["d1"] } }]);
    await page.getByRole("button", { name: "send all again" }).click();
    await page.getByRole("button", { name: "click again to send 5 events" }).click();
    await expect.poll(() => ordered.at(-1)).toEqual({ path: "/api/sink/retry", body: { name: "lake" } });
    await expect.poll(() => page.locator(".dead").innerText()).toContain("5 events sent again.");
  });

  test("shows the command that sends dead letters again when there is no password", async () => {
    const { page, url, ordered } = await openPage(1280, {}, () => ({}), false);
    await page.goto(`${url}#/sink/lake`);
    await page.getByRole("button", { name: "send again" }).first().click();
    await expect.poll(() => page.locator(".dead tbody code").innerText()).toBe("plenum outbox resend lake d1");
    await page.getByRole("button", { name: "send all again" }).click();
    await expect.poll(() => page.locator(".dead .ask code").innerText()).toBe("plenum outbox resend lake");
    expect(ordered).toEqual([]);
  });
});
