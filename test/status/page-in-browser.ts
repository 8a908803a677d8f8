import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import type { AxeResults } from "axe-core";
import { type Browser, chromium, type Page } from "playwright-core";
import { afterAll, beforeAll, onTestFinished } from "vitest";
import type { RunningWorkerState } from "#src/ui/status/status-report.ts";
import { createStatusServer } from "#src/ui/status/status-server.ts";
import { programPath } from "../real-servers.ts";
import { serverOptions, statusBuilding, WORKER } from "./status-building.ts";

/** User and password that the browser sends. */
export const OPERATOR = { username: "plenum", password: "correct horse" };
const DISABLED = ["gpu", "quic", "background-networking", "component-update", "sync"];
const FLAGS = ["--no-sandbox", "--no-first-run", ...DISABLED.map((name) => `--disable-${name}`)];

/** One browser for the tests of a file; what it answers makes a page for an address, which is not opened yet. */
export function browserOfTests() {
  let browser: Browser;
  beforeAll(async () => {
    browser = await chromium.launch({ executablePath: programPath("chromium") ?? "", args: FLAGS });
  });
  afterAll(() => browser?.close());
  // Playwright switches the cache off where it sends a password.
  return async (url: string, width = 1280, signsIn = true) => {
    const viewport = { width, height: 900 };
    const page = await browser.newPage({ viewport, ...(signsIn && { httpCredentials: OPERATOR }) });
    // Messages of the browser and requests to other hosts; both stay empty.
    const complaints: string[] = [];
    const elsewhere: string[] = [];
    page.on("console", (message) => message.type() === "error" && complaints.push(message.text()));
    page.on("pageerror", (error) => complaints.push(error.message));
    page.on("request", (request) => request.url().startsWith(url) || elsewhere.push(request.url()));
    onTestFinished(() => page.close());
    return { page, complaints, elsewhere, open: () => page.goto(url) };
  };
}

/** The same for a status page over a small building. */
export function pagesInBrowser() {
  const view = browserOfTests();
  return async (width = 1280, live: RunningWorkerState = WORKER, more: Parameters<typeof serverOptions>[1] = {}) => {
    const building = await statusBuilding(live);
    const server = createStatusServer(serverOptions(building, more));
    await server.start(new AbortController().signal);
    onTestFinished(() => server.stop(1_000));
    return { ...building, server, ...(await view(server.url(), width)) };
  };
}

const AXE = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

/** Returns the barriers that axe finds for users of screen readers and keyboards. `only`: names of the rules to check. */
export async function findings(page: Page, only?: readonly string[]): Promise<readonly string[]> {
  await page.evaluate(AXE);
  const options = only === undefined ? {} : { runOnly: only };
  const { violations } = (await page.evaluate(`axe.run(${JSON.stringify(options)})`)) as AxeResults;
  return violations.flatMap(({ id, nodes }) => nodes.map(({ html, any }) => `${id}: ${html} ${any[0]?.message ?? ""}`));
}
