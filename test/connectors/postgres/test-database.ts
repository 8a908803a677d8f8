import { afterAll, beforeAll } from "vitest";
import { PostgresConfig } from "#connectors/postgres/config.ts";
import { createPostgresSink } from "#connectors/postgres/sink.ts";
import type { ConnectorContext, Receipt, Sink } from "#src/core/connector.ts";
import { errorText } from "#src/core/errors/errors.ts";
import type { Event } from "#src/core/model/event.ts";
import { queryPostgres } from "../../query-postgres.ts";
import { type RealServer, startPostgres } from "../../real-servers.ts";
import { closeAfterTest } from "../../test-resources.ts";
import { contextFor, never, offered } from "../context.ts";

export interface Database {
  readonly name: string;
  query(text: string, values?: readonly unknown[]): Promise<readonly (readonly unknown[])[]>;
  sink(options?: Readonly<Record<string, unknown>>, context?: ConnectorContext): Sink;
}

let databases = 0;

/** Starts a server for the tests of a file or of a block. */
export function useServer(options: Parameters<typeof startPostgres>[0] = {}): () => RealServer {
  let server: RealServer;
  beforeAll(async () => {
    server = await startPostgres({ lines: ["fsync = off"], ...options });
  });
  afterAll(() => server.stop());
  return () => server;
}

export async function openSink(server: RealServer, options: Readonly<Record<string, unknown>> = {}) {
  const database = await createDatabase(server);
  const sink = sinkIn(database, options);
  await sink.open(never());
  return { database, sink };
}

export function sinkIn(database: Database, options: Readonly<Record<string, unknown>> = {}): Sink {
  return closeAfterTest(database.sink(options));
}

export function failureText(work: Promise<unknown>): Promise<string> {
  return work.then(
    () => "",
    (error: unknown) => `${(error as { kind?: string }).kind}: ${errorText(error)}`,
  );
}

export async function createDatabase(server: Pick<RealServer, "port">, more = ""): Promise<Database> {
  const name = `test_${process.pid}_${databases++}`;
  await queryPostgres(server, "postgres", `create database ${name} ${more}`);
  return {
    name,
    query: (text, values) => queryPostgres(server, name, text, values),
    sink: (options = {}, context = contextFor("warehouse")) =>
      createPostgresSink(PostgresConfig.parse({ ...optionsFor(server, name), ...options }), context),
  };
}

export function optionsFor(server: Pick<RealServer, "port">, database: string) {
  return { host: "127.0.0.1", port: server.port, database, user: "postgres", sslmode: "disable" };
}

export function write(sink: Sink, events: readonly Event[], position = 1): Promise<Receipt> {
  return sink.write(events, never(), undefined, offered(events, position));
}
