import { SERVICE_TOKEN, type SimulatorOptionsInput } from "#src/simulator/options.ts";
import { createSimulator } from "#src/simulator/simulator.ts";

// A simulator with a clock that the test advances, and short functions for its requests.

/** A Saturday, not aligned to the recording. */
export const START_MS = Date.parse("2026-11-21T10:00:00Z");

export type Reply = ReturnType<SimulatedService["get"]>;
export type SimulatedService = ReturnType<typeof simulatedService>;
type Parameters = Readonly<Record<string, string | number>>;
type Headers = Readonly<Record<string, string>>;

export function simulatedService(options: SimulatorOptionsInput = {}, startMs = START_MS) {
  let nowMs = startMs;
  const simulator = createSimulator(options, { now: () => nowMs });
  const usual = { authorization: `Bearer ${SERVICE_TOKEN}`, accept: "application/json", host: "service.test" };

  function send(method: string, path: string, query: Parameters, body: string | undefined, headers: Headers) {
    const parameters = new URLSearchParams();
    for (const [name, value] of Object.entries(query)) parameters.set(name, String(value));
    const reply = simulator.handle({
      method,
      path: `/api/v1/${path}`,
      query: parameters,
      headers: { ...usual, ...headers },
      body,
      receivedAtMs: nowMs,
    });
    const isJson = reply.headers["content-type"] === "application/json";
    // biome-ignore lint/suspicious/noExplicitAny: openapi.test.ts validates the shape of bodies
    const parsed: any = isJson ? JSON.parse(reply.body) : undefined;
    return { ...reply, text: reply.body, body: parsed };
  }

  return {
    simulator,
    get: (path: string, query: Parameters = {}, headers: Headers = {}) => send("GET", path, query, undefined, headers),
    post: (path: string, body: unknown) =>
      send("POST", path, {}, typeof body === "string" ? body : JSON.stringify(body), {}),
    nowMs: () => nowMs,
    advance(seconds: number): void {
      nowMs += seconds * 1000;
    },
  };
}

export function errorStatuses(reply: Reply): number[] {
  return (reply.body?.errors ?? []).map((error: { status: number }) => error.status);
}
