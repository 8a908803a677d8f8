import type { SimReply } from "#src/simulator/exchange.ts";
import { DEFAULT_TOKEN, type SimulatorOptionsInput } from "#src/simulator/options.ts";
import { createSimulator, type Simulator } from "#src/simulator/simulator.ts";

// A simulator with a clock that the test moves, and short ways to ask it.

/** A Saturday, not aligned to anything of the recording. */
export const START_MS = Date.parse("2026-11-21T10:00:00Z");

export interface Answer {
  readonly status: number;
  readonly headers: SimReply["headers"];
  readonly transport: SimReply["transport"];
  readonly text: string;
  // Answers are looked into at many depths; their shape is what openapi.test.ts is for.
  // biome-ignore lint/suspicious/noExplicitAny: see above
  readonly body: any;
}

export interface SimulatedService {
  readonly simulator: Simulator;
  get(
    path: string,
    query?: Readonly<Record<string, string | number>>,
    headers?: Readonly<Record<string, string>>,
  ): Answer;
  post(path: string, body: unknown, headers?: Readonly<Record<string, string>>): Answer;
  readonly nowMs: () => number;
  advance(seconds: number): void;
}

export function simulatedService(options: SimulatorOptionsInput = {}, startMs = START_MS): SimulatedService {
  let nowMs = startMs;
  const simulator = createSimulator(options, { now: () => nowMs });
  const usual = {
    authorization: `Bearer ${DEFAULT_TOKEN}`,
    accept: "application/json",
    host: "service.test",
  };

  function ask(
    method: string,
    path: string,
    query: URLSearchParams,
    body: string | undefined,
    headers: object,
  ): Answer {
    const reply = simulator.handle({
      method,
      path: `/api/v1/${path}`,
      query,
      headers: { ...usual, ...headers },
      body,
      receivedAtMs: nowMs,
    });
    const isJson = reply.headers["content-type"] === "application/json";
    return {
      status: reply.status,
      headers: reply.headers,
      transport: reply.transport,
      text: reply.body,
      body: isJson ? JSON.parse(reply.body) : undefined,
    };
  }

  return {
    simulator,
    get(path, query = {}, headers = {}) {
      const entries = Object.entries(query).map(([name, value]): [string, string] => [name, String(value)]);
      return ask("GET", path, new URLSearchParams(entries), undefined, headers);
    },
    post(path, body, headers = {}) {
      return ask(
        "POST",
        path,
        new URLSearchParams(),
        typeof body === "string" ? body : JSON.stringify(body),
        headers,
      );
    },
    nowMs: () => nowMs,
    advance(seconds) {
      nowMs += seconds * 1000;
    },
  };
}

/** The statuses of the errors in a body; empty for an answer without errors. */
export function errorsOf(answer: Answer): number[] {
  return (answer.body?.errors ?? []).map((error: { status: number }) => error.status);
}
