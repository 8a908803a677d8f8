import { execFileSync } from "node:child_process";
import { readFileSync, rmSync } from "node:fs";
import { join } from "node:path";
import { afterAll } from "vitest";
import { temporaryFolder } from "../real-servers.ts";

export function certificateFor(name: string): { path: string; cert: string; key: string } {
  const folder = temporaryFolder();
  afterAll(() => rmSync(folder, { recursive: true }));
  const path = join(folder, "cert.pem");
  const keyPath = join(folder, "key.pem");
  const curve = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2".split(" ");
  const names = ["-subj", `/CN=${name}`, "-addext", `subjectAltName=DNS:${name}`];
  execFileSync("openssl", ["req", "-x509", ...curve, "-keyout", keyPath, "-out", path, ...names], { stdio: "ignore" });
  return { path, cert: readFileSync(path, "utf8"), key: readFileSync(keyPath, "utf8") };
}
