import { randomBytes, randomInt } from "node:crypto";
import { readFileSync } from "node:fs";
import type { Server } from "node:http";
import type { AddressInfo } from "node:net";
import { fileURLToPath } from "node:url";
import { createAdaptorServer } from "@hono/node-server";
import { type Context, Hono } from "hono";
import { bodyLimit } from "hono/body-limit";
import { getCookie, setCookie } from "hono/cookie";
import { z } from "zod";
import { ConfigurationError } from "../../app/config/config-problems.ts";
import { asFailure, ConfigError, errorText } from "../../core/errors/errors.ts";
import type { Clock } from "../../core/runtime/clock.ts";
import { maskCredentials } from "../../core/runtime/log.ts";
import type { PlanReport } from "../../engine/sync/plan/report.ts";
import {
  allowKnownHosts,
  createGuessCounter,
  isSameSecret,
  sameOriginOnly,
  securityHeaders,
} from "../status/access-control.ts";
import { limitConnections, listen, REQUEST_TIMEOUTS } from "../status/connection-limits.ts";
import type { BuildingSummary } from "./building-inspection.ts";
import { buildingWarnings, guessTimeZone, tagCountText, tokenText } from "./building-summary-texts.ts";
import { parseServiceAddress } from "./service-address.ts";
import { INTERVALS_MS, planLines, proposeChoices, quotaUseText, SetupChoices, unitGroups } from "./setup-choices.ts";

/**
 * | Request of the setup page | Response; `{message}` for a failure |
 * |---|---|
 * | `POST /api/code` `{code}` | 204 and the session key as a cookie; 403, or 429 after too many wrong codes |
 * | `GET /api/setup` | the building and the written files so far; 401 without the session key |
 * | `POST /api/look` | the building, with proposed choices and their plan |
 * | `POST /api/plan` | the plan of other choices |
 * | `POST /api/write` | the written files |
 * | `POST /api/start` | 202: the setup server stops and the worker starts |
 */
export interface SetupServerOptions {
  readonly actions: SetupActions;
  readonly clock: Pick<Clock, "now" | "monotonic">;
  readonly machineZone: string;
  readonly onStart: () => void;
}

export interface SetupActions {
  inspect(service: ServiceAccess, signal: AbortSignal): Promise<BuildingSummary>;
  plan(building: BuildingSummary, choices: SetupChoices): PlanReport;
  write(building: BuildingSummary, request: ConfigWriteRequest & ServiceAccess): WrittenSetupFiles;
}

interface ServiceAccess {
  readonly baseUrl: string;
  readonly allowPlainHttp: boolean;
  readonly token: string;
}

const InspectionRequest = z.strictObject({
  address: z.string().max(2_000),
  token: z.string().max(10_000),
  allowPlainHttp: z.boolean(),
});

const ConfigWriteRequest = z.strictObject({
  choices: SetupChoices,
  timeZone: z.string().max(100),
  mqttUrl: z.string().max(2_000),
});
type ConfigWriteRequest = z.infer<typeof ConfigWriteRequest>;

export interface WrittenSetupFiles {
  readonly file: string;
  readonly tokenFile: string;
  readonly next: readonly (readonly [command: string, what: string])[];
}

const SESSION_COOKIE_NAME = "plenum_setup";
const MAX_REQUEST_BYTES = 32 * 1024;
const LOOPBACK_HOST = "127.0.0.1";
const SCRIPT_CONTENT_TYPE = "text/javascript; charset=utf-8";
const STYLE_CONTENT_TYPE = "text/css; charset=utf-8";
const SETUP_PAGE_FILES: readonly (readonly [path: string, file: string, type: string])[] = [
  ["/", "./page/setup.html", "text/html; charset=utf-8"],
  ["/setup.mjs", "./page/setup.mjs", SCRIPT_CONTENT_TYPE],
  ["/htm.mjs", import.meta.resolve("htm/preact/standalone"), SCRIPT_CONTENT_TYPE],
  ["/colours.css", "../status/page/colours.css", STYLE_CONTENT_TYPE],
  ["/setup.css", "./page/setup.css", STYLE_CONTENT_TYPE],
  ["/favicon.svg", "../status/page/favicon.svg", "image/svg+xml"],
];

class InvalidRequestError extends Error {}

function setupRoutes({ actions, clock, machineZone, onStart }: SetupServerOptions, entryCode: SetupEntryCode): Hono {
  let inspection: { readonly building: BuildingSummary; readonly service: ServiceAccess } | null = null;
  let inspectionResponse: object | null = null;
  let writtenFiles: WrittenSetupFiles | null = null;
  const getLastInspection = () => {
    if (inspection === null) throw new ConfigError("No building was inspected yet; begin with the address.");
    return inspection;
  };
  const app = new Hono();
  app.use(securityHeaders);
  app.use(allowKnownHosts(LOOPBACK_HOST));
  app.onError((error, context) => {
    const [problem] = error instanceof ConfigurationError ? error.problems : [];
    const message = maskCredentials(problem?.message ?? errorText(error));
    const isUserError = error instanceof InvalidRequestError || asFailure(error).kind === "config";
    return context.json({ message }, isUserError ? 400 : 502);
  });
  const onBodyTooLarge = (context: Context) => context.json({ message: "The request is too long." }, 413);
  app.use(bodyLimit({ maxSize: MAX_REQUEST_BYTES, onError: onBodyTooLarge }));
  app.post("*", sameOriginOnly);
  app.post("/api/code", async (context) => {
    const { code } = await parseJsonBody(context, z.strictObject({ code: z.string().max(100) }));
    const codeEntryResult = entryCode.enter(code);
    if (codeEntryResult === null)
      return context.json({ message: "This is not the code. The terminal shows the code for one browser." }, 403);
    if (typeof codeEntryResult === "object") {
      const seconds = `${Math.ceil(codeEntryResult.waitMs / 1_000)}`;
      return context.json({ message: `Too many wrong codes; wait ${seconds} s.` }, 429, { "retry-after": seconds });
    }
    setCookie(context, SESSION_COOKIE_NAME, codeEntryResult, { httpOnly: true, sameSite: "Strict", path: "/" });
    return context.body(null, 204);
  });
  app.use("/api/*", async (context, next) =>
    entryCode.isValidKey(getCookie(context, SESSION_COOKIE_NAME))
      ? next()
      : context.json({ message: "Enter the code from the terminal." }, 401),
  );
  app.get("/api/setup", ({ json }) => json({ looked: inspectionResponse, written: writtenFiles }));
  app.post("/api/look", async (context) => {
    const request = await parseJsonBody(context, InspectionRequest);
    const { baseUrl, notes } = parseServiceAddress(request.address, request.allowPlainHttp);
    const service = { baseUrl, allowPlainHttp: request.allowPlainHttp, token: request.token.trim() };
    if (service.token === "") throw new ConfigError("The access token is missing.");
    const building = await actions.inspect(service, context.req.raw.signal);
    const choices = proposeChoices(building, { resolution: "1h", backfillDays: 7 }, (choices) =>
      actions.plan(building, choices),
    );
    const { units, sites, systems, alarms } = building;
    inspection = { building, service };
    inspectionResponse = {
      ...{ baseUrl, notes, units, sites, systems, alarms, choices },
      token: tokenText(building, clock.now()),
      tags: tagCountText(building),
      doubts: buildingWarnings(building),
      zone: guessTimeZone(building, machineZone),
      steps: INTERVALS_MS,
      groups: unitGroups(building).map((tagGroup) => ({ ...tagGroup, units: tagGroup.units.map(({ unit }) => unit) })),
      plan: planResponse(actions.plan(building, choices)),
    };
    return context.json(inspectionResponse);
  });
  app.post("/api/plan", async (context) => {
    const choices = await parseJsonBody(context, SetupChoices);
    return context.json(planResponse(actions.plan(getLastInspection().building, choices)));
  });
  app.post("/api/write", async (context) => {
    const request = await parseJsonBody(context, ConfigWriteRequest);
    if (writtenFiles !== null) throw new ConfigError(`${writtenFiles.file} is written already.`);
    const { building, service } = getLastInspection();
    writtenFiles = actions.write(building, { ...request, ...service });
    return context.json(writtenFiles);
  });
  app.post("/api/start", (context) => {
    if (writtenFiles === null) return context.json({ message: "There is no configuration yet." }, 409);
    onStart();
    return context.json({}, 202);
  });
  for (const [path, file, type] of SETUP_PAGE_FILES)
    app.get(path, (context) =>
      context.body(readFileSync(fileURLToPath(new URL(file, import.meta.url))), 200, { "content-type": type }),
    );
  return app;
}

function planResponse(plan: PlanReport) {
  const { load, fits, changes } = plan;
  const cheapestChange = fits ? null : (changes[0]?.text ?? null);
  return { load, fits, change: cheapestChange, lines: planLines(plan), share: quotaUseText(plan) };
}

async function parseJsonBody<T extends z.ZodType>(context: Context, schema: T): Promise<z.output<T>> {
  const parsedBody = schema.safeParse(await context.req.json().catch(() => null));
  if (parsedBody.success) return parsedBody.data;
  throw new InvalidRequestError("The server does not understand this request. Load the page again.");
}

type SetupEntryCode = ReturnType<typeof createSetupEntryCode>;

const CODE_LETTERS = "ABCDEFGHJKLMNPQRSTUVWXYZ23456789";

/** Creates a one-time code, which the terminal shows. The browser in which a person enters it gets a session key. */
function createSetupEntryCode(clock: Pick<Clock, "monotonic">) {
  const codeLetters = Array.from({ length: 8 }, () => CODE_LETTERS[randomInt(CODE_LETTERS.length)]).join("");
  const key = randomBytes(32).toString("base64url");
  const codeGuesses = createGuessCounter(clock);
  let isCodeUsed = false;
  return {
    code: `${codeLetters.slice(0, 4)}-${codeLetters.slice(4)}`,
    /** Returns the session key, or the delay after too many wrong codes; null for a wrong or used code. */
    enter(code: string): string | { readonly waitMs: number } | null {
      const waitMs = codeGuesses.waitMs(LOOPBACK_HOST);
      if (waitMs > 0) return { waitMs };
      if (!isCodeUsed && isSameSecret(code.toUpperCase().replaceAll(/[^A-Z0-9]/g, ""), codeLetters)) {
        isCodeUsed = true;
        return key;
      }
      codeGuesses.countWrongGuess(LOOPBACK_HOST);
      return null;
    },
    isValidKey: (givenKey: string | undefined) => isCodeUsed && givenKey !== undefined && isSameSecret(givenKey, key),
  };
}

export type SetupServer = Awaited<ReturnType<typeof startSetupServer>>;

export async function startSetupServer(options: SetupServerOptions, port: number) {
  const entryCode = createSetupEntryCode(options.clock);
  const { fetch } = setupRoutes(options, entryCode);
  const server = createAdaptorServer({ fetch, serverOptions: REQUEST_TIMEOUTS }) as Server;
  limitConnections(server);
  await listen(
    server,
    { port, host: LOOPBACK_HOST },
    ({ code }) => new ConfigError(`The port ${port} of ${LOOPBACK_HOST} cannot be used (${code}).`),
  );
  return {
    url: `http://${LOOPBACK_HOST}:${(server.address() as AddressInfo).port}`,
    code: entryCode.code,
    /** Waits at most 500 ms for responses that are being sent. */
    close: () =>
      new Promise<void>((resolve) => {
        server.close(() => resolve());
        server.closeIdleConnections();
        setTimeout(() => server.closeAllConnections(), 500).unref();
      }),
  };
}
