import { rmSync } from "node:fs";
import { onTestFinished } from "vitest";
import { temporaryFolder } from "./real-servers.ts";

export function testFolder(name?: string): string {
  const folder = temporaryFolder(name);
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
  return folder;
}
