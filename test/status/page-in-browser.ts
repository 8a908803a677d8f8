import { type Browser, chromium, type Page } from "playwright-core";
import { afterAll, beforeAll, onTestFinished } from "vitest";
import type { WorkerParts } from "#src/ui/status/report.ts";
import { createStatusServer, type StatusServer } from "#src/ui/status/server.ts";
import { programPath } from "../real-servers.ts";
import { type StatusBuilding, serverOptions, statusBuilding, WORKER } from "./status-building.ts";

/** What the browser sends where the page asks for a password. */
export const OPERATOR = { username: "plenum", password: "correct horse" };
const FLAGS = [
  "--no-sandbox",
  "--disable-gpu",
  "--disable-quic",
  "--no-first-run",
  "--disable-background-networking",
  "--disable-component-update",
  "--disable-sync",
];

export interface OpenedPage extends StatusBuilding {
  readonly server: StatusServer;
  readonly page: Page;
  /** What the browser complained about, and what was asked for elsewhere; both stay empty. */
  readonly complaints: string[];
  readonly elsewhere: string[];
  open(): Promise<unknown>;
}

/** A page at an address that is not opened yet. */
export type ViewedPage = Pick<OpenedPage, "page" | "complaints" | "elsewhere" | "open">;

/** One browser for the tests of a file; what it answers makes a page for an address. */
export function browserOfTests(): (url: string, width?: number, signsIn?: boolean) => Promise<ViewedPage> {
  let browser: Browser;
  beforeAll(async () => {
    browser = await chromium.launch({ executablePath: programPath("chromium") ?? "", args: FLAGS });
  });
  afterAll(() => browser?.close());

  // Playwright switches the cache off where it sends a password.
  return async (url, width = 1280, signsIn = true) => {
    const page = await browser.newPage({
      viewport: { width, height: 900 },
      ...(signsIn ? { httpCredentials: OPERATOR } : {}),
    });
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
export function pagesInBrowser(): (
  width?: number,
  live?: WorkerParts,
  more?: Parameters<typeof serverOptions>[1],
) => Promise<OpenedPage> {
  const view = browserOfTests();
  return async (width = 1280, live = WORKER, more = {}) => {
    const building = await statusBuilding(live);
    const server = createStatusServer(serverOptions(building, more));
    await server.start(new AbortController().signal);
    onTestFinished(() => server.stop(1_000));
    return { ...building, server, ...(await view(server.url(), width)) };
  };
}
