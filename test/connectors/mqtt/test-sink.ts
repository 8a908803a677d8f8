import type { z } from "zod";
import { MqttConfig } from "#connectors/mqtt/config.ts";
import { createMqttSink } from "#connectors/mqtt/sink.ts";
import type { Sink } from "#src/core/connector.ts";
import { type MosquittoOptions, startMosquitto } from "../../real-servers.ts";
import { closeAfterTest, stopAfterTest } from "../../test-resources.ts";
import { contextFor } from "../context.ts";

export type Settings = Partial<z.input<typeof MqttConfig>>;

/** Creates a sink that is closed after the test. */
export function createTestSink(url: string, settings: Settings = {}, context = contextFor("broker")): Sink {
  return closeAfterTest(createMqttSink(MqttConfig.parse({ url, ...settings }), context));
}

export async function startMosquittoInTest(options?: MosquittoOptions) {
  return stopAfterTest(await startMosquitto(options));
}
