import { rmSync, writeFileSync } from "node:fs";
import type { ServerResponse } from "node:http";
import { join } from "node:path";
import { type StubResponse, type StubServer, startStub } from "../connectors/stub-server.ts";
import { temporaryFolder } from "../real-servers.ts";

/** The server of a receiver, simulated in this process with the rules of the real one. */
export interface ReceiverServer {
  readonly config: Readonly<Record<string, unknown>>;
  readonly stub: StubServer | null;
  incidents(): readonly ReceiverIncident[];
  /** Carries out the next `count` changing requests and then breaks the connection instead of answering. */
  loseResponses(count: number): void;
  /** Answers the next `count` requests with 429, or what the server has instead, and does not carry them out. */
  throttle(count: number): void;
  failBy?(draw: DrawFailure | null): void;
  clear?(): void;
  requests(): number;
  stop(): Promise<void>;
}

export type ServerFailure = "lost" | "failed" | { readonly waitSeconds: number };

/** `isLimited`: whether the request counts for the rate limit. */
export type DrawFailure = (isLimited: boolean) => ServerFailure | null;

export interface ReceiverIncident {
  readonly key: string | null;
  readonly isOpen: boolean;
  readonly texts: readonly string[];
  readonly messages?: number;
}

export async function startReceiverStub(busy: StubResponse) {
  const stub = await startStub();
  const folder = temporaryFolder("receiver");
  let secrets = 0;
  let toLose = 0;
  let toWait = 0;
  let draw: DrawFailure | null = null;
  return {
    secret(text: string): { readonly file: string } {
      secrets += 1;
      const file = join(folder, `secret-${secrets}`);
      writeFileSync(file, `${text}\n`, { mode: 0o600 });
      return { file };
    },

    interrupt(carryOut: () => StubResponse, response: ServerResponse, isLimited = true): StubResponse | null {
      if (toWait > 0) {
        toWait -= 1;
        return busy;
      }
      const failure = draw?.(isLimited) ?? null;
      if (failure === "failed") return { status: 500 };
      if (failure !== null && failure !== "lost")
        return { ...busy, headers: { ...busy.headers, "retry-after": String(failure.waitSeconds) } };
      const reply = carryOut();
      if (toLose === 0 && failure !== "lost") return reply;
      toLose = Math.max(0, toLose - 1);
      response.destroy();
      return null;
    },

    common: {
      stub,
      loseResponses(count: number) {
        toLose = count;
      },
      throttle(count: number) {
        toWait = count;
      },
      failBy(by: DrawFailure | null) {
        draw = by;
      },
      requests: () => stub.seen.length,
      async stop() {
        await stub.stop();
        rmSync(folder, { recursive: true, force: true });
      },
    },
  };
}

export function jsonReply(status: number, body: unknown, headers: Readonly<Record<string, string>> = {}): StubResponse {
  return { status, headers: { "content-type": "application/json", ...headers }, body: JSON.stringify(body) };
}
