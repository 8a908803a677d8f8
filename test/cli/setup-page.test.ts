import { existsSync, readFileSync, rmSync, statSync } from "node:fs";
import { describe, expect, test } from "vitest";
import { SERVICE_TOKEN } from "#src/simulator/options.ts";
import { absent } from "../real-servers.ts";
import { browserOfTests, findings } from "../status/page-in-browser.ts";
import { servedHarness } from "./plenum.ts";

async function setUp() {
  const { service, cli } = await servedHarness();
  rmSync(cli.path("plenum.yaml"));
  const worker = cli.start("run", "--setup");
  const startLog = await worker.waitForOutput("Ctrl-C ends it");
  const [, url = ""] = /setup page +(http:\S+)/.exec(startLog) ?? [];
  const [, code = ""] = /code +([A-Z0-9]{4}-[A-Z0-9]{4}) /.exec(startLog) ?? [];
  return { service, cli, worker, url, code };
}

describe.skipIf(absent("chromium"))("the setup page", () => {
  const openInBrowser = browserOfTests();

  test("can be used with the keyboard alone, from entering the setup code to the status page", async () => {
    const { service, cli, worker, url, code } = await setUp();
    const { page, complaints, elsewhere, open } = await openInBrowser(url);
    await open();
    const pressKeys = (...keys: readonly string[]) =>
      keys.reduce((before, key) => before.then(() => page.keyboard.press(key)), Promise.resolve());
    const heading = (text: string) => page.getByRole("heading", { name: text }).waitFor();
    const waitForAlert = (text: string | RegExp) => page.getByRole("alert").filter({ hasText: text }).waitFor();
    await heading("Enter the code");
    await pressKeys("Tab");
    await page.keyboard.type("AAAA-AAAA");
    await pressKeys("Enter");
    await waitForAlert("This is not the code.");
    await page.getByLabel("Code").fill(code.toLowerCase());
    await pressKeys("Enter");
    await heading("Where is the building?");
    expect(await findings(page)).toEqual([]);
    await pressKeys("Tab");
    await page.keyboard.type(`${service.url}/api/v1`);
    await pressKeys("Tab");
    await page.keyboard.type("wrong-token");
    await pressKeys("Enter");
    await waitForAlert("does not accept this token.");
    await page.getByLabel("Access token").fill(SERVICE_TOKEN);
    await pressKeys("Enter");
    await heading("Inspection result");
    await page.getByText("/api/v1 at the end of the address is left out").waitFor();
    await page.getByText("141 tags (kWh").waitFor();
    expect(await findings(page)).toEqual([]);
    await page.getByText(/^A database or data lake stores \d+ rows of values a day$/).waitFor();
    const share = page.locator(".plan b");
    const shareBefore = await share.textContent();
    expect(shareBefore).toMatch(/^These intervals take \d+ % of the quota/);
    const slider = page.getByLabel("Measured values");
    expect(await slider.getAttribute("aria-valuetext")).toBe("30 s");
    await slider.focus();
    await pressKeys("ArrowLeft", "ArrowLeft");
    expect(await slider.getAttribute("aria-valuetext")).toBe("10 s");
    await expect.poll(() => share.textContent()).not.toBe(shareBefore);
    await page.getByLabel("Meters").focus();
    await pressKeys("End");
    expect(await page.getByLabel("Meters").getAttribute("aria-valuetext")).toBe("not read");
    await expect.poll(() => page.locator(".plan li").allTextContents()).toHaveLength(4);
    await page.reload();
    await heading("Inspection result");
    await page.getByLabel("Time zone of the buildings").fill("Oslo");
    await pressKeys("Enter");
    await waitForAlert("`Oslo` is not a time zone");
    expect(existsSync(cli.path("plenum.yaml"))).toBe(false);
    await page.getByLabel("Time zone of the buildings").fill("Europe/Oslo");
    await page.getByLabel("MQTT broker").fill("localhost");
    await pressKeys("Enter");
    await waitForAlert(/mqtt/);
    await page.getByLabel("MQTT broker").fill("");
    await pressKeys("Enter");
    await heading("The configuration is written");
    expect(await findings(page)).toEqual([]);
    const token = cli.path("secrets/buildings_token");
    expect([readFileSync(token, "utf8"), statSync(token).mode & 0o777]).toEqual([`${SERVICE_TOKEN}\n`, 0o600]);
    const configText = readFileSync(cli.path("plenum.yaml"), "utf8");
    expect(configText).toContain("time_zone: Europe/Oslo");
    expect(complaints.filter((each) => !/status of 40\d/.test(each))).toEqual([]);
    await page.getByRole("button", { name: "Start the worker" }).focus();
    await pressKeys("Enter");
    await worker.waitForOutput("Plenum is running");
    await page.getByText("Freshness").first().waitFor();
    expect(page.url()).toBe(`${url}/`);
    expect(elsewhere).toEqual([]);
    worker.signal("SIGTERM");
    const runResult = await worker.ended;
    expect(runResult.code).toBe(0);
    expect(runResult.stderr + runResult.stdout).not.toContain(SERVICE_TOKEN);
    expect(await cli.refusal("run", "--setup")).toBe(
      "78 plenum.yaml exists already, and nothing is overwritten. Name another file with --config, or move that one away.",
    );
  });
});
