import { PostgresConfig } from "#connectors/postgres/config.ts";
import { createPostgresSink } from "#connectors/postgres/sink.ts";
import type { ConnectorContext, Offered, Receipt, Sink } from "#src/core/connector.ts";
import type { Event } from "#src/core/model/event.ts";
import { askAt } from "../../ask-postgres.ts";
import type { RealServer } from "../../real-servers.ts";
import { contextFor, never } from "../context.ts";

/** A database of its own on a server, and sinks that lead to it. */
export interface Database {
  readonly name: string;
  /** Runs a query as the owner; rows as lists. */
  ask(text: string, values?: readonly unknown[]): Promise<readonly (readonly unknown[])[]>;
  sink(options?: Readonly<Record<string, unknown>>, context?: ConnectorContext): Sink;
}

let databases = 0;

export async function createDatabase(server: Pick<RealServer, "port">, more = ""): Promise<Database> {
  const name = `test_${process.pid}_${databases++}`;
  await askAt(server, "postgres", `create database ${name} ${more}`);
  return {
    name,
    ask: (text, values) => askAt(server, name, text, values),
    sink: (options = {}, context = contextFor("warehouse")) =>
      createPostgresSink(PostgresConfig.parse({ ...optionsFor(server, name), ...options }), context),
  };
}

export function optionsFor(server: Pick<RealServer, "port">, database: string) {
  return { host: "127.0.0.1", port: server.port, database, user: "postgres", sslmode: "disable" };
}

/** Committed one second after the other, from `position` on. */
export function offered(events: readonly Event[], position = 1): Offered {
  const first = Date.parse("2026-11-02T06:20:00.000Z");
  return {
    positions: events.map((_, n) => position + n),
    committedAt: events.map((_, n) => new Date(first + (position + n) * 1_000).toISOString()),
    again: false,
  };
}

export function write(sink: Sink, events: readonly Event[], position = 1): Promise<Receipt> {
  return sink.write(events, never(), undefined, offered(events, position));
}
