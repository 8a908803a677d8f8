import { rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { pino } from "pino";
import { expect, onTestFinished } from "vitest";
import type { ConnectorContext } from "#src/core/connector.ts";
import type { Failure } from "#src/core/errors/errors.ts";
import type { Clock } from "#src/core/runtime/clock.ts";
import { contextFor } from "../connectors/context.ts";
import { type StubServer, startStub } from "../connectors/stub-server.ts";
import { temporaryFolder } from "../real-servers.ts";

export async function catchFailure(call: Promise<unknown> | undefined): Promise<Failure> {
  try {
    await call;
  } catch (error) {
    return error as Failure;
  }
  throw new Error("The call did not fail.");
}

/** Expects a rejection with these properties; a RegExp matches a text. */
export async function expectFailure(call: Promise<unknown> | undefined, expected: Readonly<Record<string, unknown>>) {
  const matcher = (value: unknown) => (value instanceof RegExp ? expect.stringMatching(value) : value);
  const entries = Object.entries(expected).map(([key, value]) => [key, matcher(value)] as const);
  expect(await catchFailure(call)).toMatchObject(Object.fromEntries(entries));
}

export async function startStubInTest(answer?: StubServer["answer"]): Promise<StubServer> {
  const stub = await startStub();
  onTestFinished(() => stub.stop());
  if (answer !== undefined) stub.answer = answer;
  return stub;
}

export function secretFile(text: string): { readonly file: string } {
  const folder = temporaryFolder();
  onTestFinished(() => rmSync(folder, { recursive: true }));
  const file = join(folder, "secret");
  writeFileSync(file, text, { mode: 0o600 });
  return { file };
}

export function loggedContext(name: string, lines: string[], clock?: Clock): ConnectorContext {
  const log = pino({ level: "trace", base: null }, { write: (line) => void lines.push(line) });
  return { ...contextFor(name, clock), log };
}
