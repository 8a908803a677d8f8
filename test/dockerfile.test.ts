import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "vitest";

const root = join(import.meta.dirname, "..");
const text = readFileSync(join(root, "Dockerfile"), "utf8").replaceAll(/\\\n/g, " ");
const lines = text.split("\n").filter((line) => line !== "" && !line.startsWith("#"));
const instructions = (name: string) => lines.filter((line) => line.startsWith(`${name} `));

describe("the Dockerfile", () => {
  test("builds in stages on a slim image and copies no development dependencies into the last stage", () => {
    expect(instructions("FROM")).toEqual([
      "FROM node:24-trixie-slim AS program",
      "FROM node:24-trixie-slim AS dependencies",
      "FROM node:24-trixie-slim",
    ]);
    expect(text).toContain("npm ci --omit=dev --ignore-scripts");
    const copied = instructions("COPY").filter((line) => line.includes("--from=program"));
    expect(copied).toEqual([
      "COPY --from=program /app/THIRD-PARTY-NOTICES.md /app/sbom.cdx.json ./",
      "COPY --from=program /app/program program",
    ]);
  });

  test("switches to an unprivileged user after all steps that need root", () => {
    const user = instructions("USER");
    expect(user).toEqual(["USER 10001:10001"]);
    const after = lines.slice(lines.indexOf(user[0] ?? ""));
    expect(after.filter((line) => /^(RUN|COPY|ADD) /.test(line))).toEqual([]);
  });

  test("starts node directly, because npm does not forward the stop signal", () => {
    const command: unknown = JSON.parse(instructions("CMD").at(-1)?.slice(4) ?? "null");
    expect(command).toEqual(expect.arrayContaining(["node", "program/main.js", "run", "--config"]));
    const health = /CMD (\[.*\])$/.exec(instructions("HEALTHCHECK")[0] ?? "")?.[1] ?? "null";
    expect(JSON.parse(health)).toEqual(expect.arrayContaining(["node", "program/main.js", "status", "--probe"]));
  });

  test("copies only existing files and contains no secret", () => {
    for (const line of instructions("COPY")) {
      if (line.includes("--from=")) continue;
      for (const path of line.split(" ").slice(1, -1)) expect(existsSync(join(root, path)), path).toBe(true);
    }
    expect(text).not.toMatch(/(TOKEN|PASSWORD|SECRET)\s*=/i);
  });
});
