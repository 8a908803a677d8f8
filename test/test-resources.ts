import { rmSync } from "node:fs";
import { onTestFinished } from "vitest";
import { temporaryFolder } from "./real-servers.ts";

/** Creates a folder that is removed after the test. */
export function testFolder(name?: string): string {
  const folder = temporaryFolder(name);
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
  return folder;
}

export function stopAfterTest<T extends { stop(): unknown }>(resource: T): T {
  onTestFinished(async () => void (await resource.stop()));
  return resource;
}

export function closeAfterTest<T extends { close(): unknown }>(resource: T): T {
  onTestFinished(async () => void (await resource.close()));
  return resource;
}

export function disposeAfterTest<T extends { dispose(): unknown }>(resource: T): T {
  onTestFinished(async () => void (await resource.dispose()));
  return resource;
}
