import { existsSync, readFileSync, rmSync, statSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { pathInConfig, pathNextToConfig, refuseExistingFile, writeNewFiles } from "#src/ui/setup/new-config-files.ts";
import { temporaryFolder } from "../real-servers.ts";
import { thrownText } from "./buildings.ts";

let folder: string;
beforeEach(() => {
  folder = temporaryFolder("setup-write");
});
afterEach(() => rmSync(folder, { recursive: true }));

const at = (name: string) => join(folder, name);
const modeOf = (name: string) => statSync(at(name)).mode & 0o777;
const configFile = (name = "plenum.yaml", option: string | null = "--config") => ({
  ...{ file: at(name), text: "sources:\n", option },
});
const tokenFile = { file: "", text: "secret\n", option: "--token-file" };

describe.skipIf(process.platform === "win32")("writeSetup", () => {
  test("writes the configuration readable by all users and the token readable by its owner, and creates private folders", () => {
    writeNewFiles(configFile("conf/plenum.yaml"), { ...tokenFile, file: at("secrets/deep/token") });
    expect([readFileSync(at("conf/plenum.yaml"), "utf8"), modeOf("conf/plenum.yaml") & 0o044]).toEqual([
      "sources:\n",
      0o644 & ~process.umask() & 0o044,
    ]);
    expect([readFileSync(at("secrets/deep/token"), "utf8"), modeOf("secrets/deep/token")]).toEqual(["secret\n", 0o600]);
    expect([modeOf("secrets"), modeOf("secrets/deep")]).toEqual([0o700, 0o700]);
    writeNewFiles(configFile("second.yaml"), null);
    expect(existsSync(at("second.yaml"))).toBe(true);
  });

  test("removes the token when the configuration cannot be written", () => {
    writeFileSync(at("file"), "");
    // `file` is a file, so no configuration can be written below it.
    const writeBelowFile = () => writeNewFiles(configFile("file/plenum.yaml"), { ...tokenFile, file: at("token") });
    expect(thrownText(writeBelowFile)).toBe(
      `${at("file/plenum.yaml")} cannot be written (EEXIST). Name another file with --config.`,
    );
    expect(existsSync(at("token"))).toBe(false);
    const writeWithoutOption = () => writeNewFiles(configFile("file/plenum.yaml", null), null);
    expect(thrownText(writeWithoutOption)).toMatch(/\(EEXIST\)\. Start Plenum where it may write\.$/);
  });

  test("rejects an existing file or a broken link at the path of the configuration or of the token", () => {
    writeFileSync(at("plenum.yaml"), "mine");
    const existsMessage = `${at("plenum.yaml")} exists already, and nothing is overwritten.`;
    expect(thrownText(() => writeNewFiles(configFile(), { ...tokenFile, file: at("token") }))).toBe(
      `${existsMessage} Name another file with --config, or move that one away.`,
    );
    expect(existsSync(at("token"))).toBe(false);
    const refusal = thrownText(() => writeNewFiles(configFile("plenum.yaml", null), null));
    expect(refusal).toBe(`${existsMessage} Move it away.`);
    symlinkSync(at("nothing"), at("link"));
    expect(thrownText(() => refuseExistingFile(at("link"), null))).toContain("exists already");
    expect(thrownText(() => writeNewFiles(configFile("link"), null))).toContain("exists already");
    writeFileSync(at("token"), "mine");
    expect(thrownText(() => writeNewFiles(configFile("new.yaml"), { ...tokenFile, file: at("token") }))).toBe(
      `${at("token")} exists already, and nothing is overwritten. Name another file with --token-file, or move that one away.`,
    );
    expect([readFileSync(at("token"), "utf8"), existsSync(at("new.yaml"))]).toEqual(["mine", false]);
    refuseExistingFile(at("free"), null);
  });
});

test.each<[string, string, string]>([
  ["plenum.yaml", "token", "token"],
  ["./plenum.yaml", "secrets/token", "secrets/token"],
  ["conf/plenum.yaml", "token", "/base/token"],
  ["/base/plenum.yaml", "token", "token"],
  ["conf/plenum.yaml", "/run/token", "/run/token"],
])("a configuration at %s contains the path %s as %s", (file, path, written) => {
  expect(pathInConfig(file, path, "/base")).toBe(written);
});

test.each<[string, string]>([
  ["plenum.yaml", "state"],
  ["conf/plenum.yaml", "/base/conf/state"],
  ["/etc/plenum/plenum.yaml", "/etc/plenum/state"],
])("the state folder of a configuration at %s is %s", (file, made) => {
  expect(pathNextToConfig(file, "state", "/base")).toBe(made);
});
