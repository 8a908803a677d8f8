import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { pino } from "pino";
import { expect } from "vitest";
import type { IncidentReference } from "#connectors/shared/receiver/receiver-interface.ts";
import type { ConnectorContext } from "#src/core/connector.ts";
import { errorText, type Failure } from "#src/core/errors/errors.ts";
import type { Clock } from "#src/core/runtime/clock.ts";
import { contextFor } from "../connectors/context.ts";
import { type StubServer, startStub } from "../connectors/stub-server.ts";
import { stopAfterTest, testFolder } from "../test-resources.ts";

export async function catchFailure(call: Promise<unknown> | undefined): Promise<Failure> {
  try {
    await call;
  } catch (error) {
    return error as Failure;
  }
  throw new Error("The call did not fail.");
}

/** Expects a rejection with these properties; a RegExp matches a text. Returns the message with the hint. */
export async function expectFailure(call: Promise<unknown> | undefined, expected: object, words = ""): Promise<string> {
  const matcher = (value: unknown) => (value instanceof RegExp ? expect.stringMatching(value) : value);
  const entries = Object.entries(expected).map(([key, value]) => [key, matcher(value)] as const);
  const failure = await catchFailure(call);
  expect(failure).toMatchObject(Object.fromEntries(entries));
  expect(errorText(failure)).toContain(words);
  return errorText(failure);
}

/** Returns the only item, such as the only ticket of a server. */
export function onlyOne<T>(items: readonly T[]): T {
  const [first] = items;
  if (first === undefined || items.length > 1) throw new Error(`There are ${items.length} items.`);
  return first;
}

export function requireReference(reference: IncidentReference | "gone"): IncidentReference {
  if (reference === "gone") throw new Error("The incident is gone.");
  return reference;
}

export async function startStubInTest(answer?: StubServer["respond"]): Promise<StubServer> {
  const stub = stopAfterTest(await startStub());
  if (answer !== undefined) stub.respond = answer;
  return stub;
}

export function secretFile(text: string): { readonly file: string } {
  const file = join(testFolder(), "secret");
  writeFileSync(file, text, { mode: 0o600 });
  return { file };
}

export function loggedContext(name: string, lines: string[], clock?: Clock): ConnectorContext {
  const log = pino({ level: "trace", base: null }, { write: (line) => void lines.push(line) });
  return { ...contextFor(name, clock), log };
}
