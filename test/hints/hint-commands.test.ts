import { execFileSync } from "node:child_process";
import { chmodSync, rmSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, onTestFinished, test } from "vitest";
import { isMap, isScalar, isSeq, parse, parseDocument } from "yaml";
import { parseSigningKey } from "#connectors/webhook/sink.ts";
import { Config } from "#src/app/config/config.ts";
import { type ConfigProblem, ConfigurationError } from "#src/app/config/config-problems.ts";
import { parseYaml } from "#src/app/config/load.ts";
import { ConfigError } from "#src/core/errors/errors.ts";
import { Secret } from "#src/core/runtime/log.ts";
import { readSecret } from "#src/core/runtime/secret.ts";
import { parsePrivateKey } from "#src/engine/commands/approval/signature.ts";
import { refuseWritableByOthers } from "#src/engine/store/state-folder.ts";
import { readPageCredentials } from "#src/ui/status/access-control.ts";
import { StatusConfig } from "#src/ui/status/status-config.ts";
import { openHarness, simulatedServer } from "../cli/plenum.ts";
import { MISTAKES } from "../config/configured.ts";
import { temporaryFolder } from "../real-servers.ts";

/** A hint that is followed to the letter leads to something that then works. */

function folder(): string {
  const path = temporaryFolder("plenum-hints");
  onTestFinished(() => rmSync(path, { recursive: true, force: true }));
  return path;
}

/** The command line that a failure's hint gives, as somebody would copy it. */
function extractCommand(fail: () => unknown): string {
  try {
    fail();
  } catch (error) {
    const hint = error instanceof ConfigError ? (error.hint ?? "") : "";
    const [, quoted, proposal] = /`([^`]+)`|: ((?:chmod|openssl|echo) [^,]+)/.exec(hint) ?? [];
    return quoted ?? proposal ?? "";
  }
  throw new Error("Nothing failed, so nothing was hinted at.");
}

const run = (command: string) => execFileSync("sh", ["-c", command]).toString();

describe("the system command in the hint of an error", () => {
  test("makes a readable secret file private", () => {
    const file = join(folder(), "token");
    writeFileSync(file, "abc\n");
    chmodSync(file, 0o644);
    run(extractCommand(() => readSecret({ file })));
    expect(readSecret({ file }).reveal()).toBe("abc");
  });

  test("makes a state folder private that other users could write to", () => {
    const path = folder();
    chmodSync(path, 0o777);
    run(extractCommand(() => refuseWritableByOthers(path)));
    refuseWritableByOthers(path);
    expect(statSync(path).mode & 0o022).toBe(0);
  });

  test("generates a password that is long enough", () => {
    const config = StatusConfig.parse({ password: { env: "PASSWORD" } });
    const generated = run(extractCommand(() => readPageCredentials(config, { PASSWORD: "short" })));
    expect(readPageCredentials(config, { PASSWORD: generated.trim() })).not.toBeNull();
  });

  test("generates a valid signing secret", () => {
    const generated = run(extractCommand(() => parseSigningKey(new Secret("secret"))));
    expect(parseSigningKey(new Secret(generated))).toHaveLength(32);
  });

  test("generates a private key that can sign approvals", () => {
    const generated = run(extractCommand(() => parsePrivateKey("nothing", "key.pem")));
    expect(parsePrivateKey(generated, "key.pem").asymmetricKeyType).toBe("ed25519");
  });
});

describe("the plenum commands in the hints of errors", () => {
  test("work with and without a worker", async () => {
    const service = await simulatedServer();
    const workspace = openHarness(service.url);
    workspace.configure({ source: { read: [{ name: "all", every: "1m" }] } });
    for (const command of ["check", "plan", "sites", "alarms"]) {
      expect((await workspace.plenum(command)).code, command).toBe(0);
    }
    const write = await workspace.plenum("write", "10001", "1");
    expect(write.stderr).toContain("`plenum run`");
    const worker = await workspace.run();
    for (const command of ["status", "backfill", "plan", "silence", "outbox"]) {
      expect((await workspace.plenum(command)).code, command).toBe(0);
    }
    await worker.stop();
    expect((await workspace.plenum("state", "check")).code).toBe(0);
  });
});

type Proposal = { readonly value: unknown } | { readonly key: string };

/** Value that a configuration error proposes; null if it only describes one. */
function parseProposal({ message }: ConfigProblem): Proposal | null {
  const [, key] = /^This key is not known here\. Did you mean (\S+)\?$/.exec(message) ?? [];
  if (key !== undefined) return { key };
  const [, meant] = /Did you mean (\S+)\?/.exec(message) ?? [];
  const [, proposal] =
    /^(?:Write a list: |Put this into quotes: |Write (?:the address with its scheme: |the time zone as )?)("[^"]*"|\[.*\]|[\w./:*-]*\d[\w./:*-]*|true|false|[a-z-]+-\*|[A-Z]\w+\/\w+)(?:\.$|: |, | for all| \(|$)/.exec(
      message,
    ) ?? [];
  const text = meant ?? proposal?.replace(/\.$/, "");
  return text === undefined ? null : { value: parse(text) as unknown };
}

function listProblems(text: string): readonly ConfigProblem[] {
  try {
    parseYaml({ schema: Config, file: "f", text, environment: {} });
    return [];
  } catch (error) {
    return error instanceof ConfigurationError ? error.problems : [];
  }
}

/** The file after one complaint was followed. */
function applyProposal(text: string, { path }: ConfigProblem, proposal: Proposal): string {
  const document = parseDocument(text);
  const yamlPath = path.split(".").map((step) => (/^\d+$/.test(step) ? Number(step) : step));
  if ("value" in proposal) {
    document.setIn(yamlPath, proposal.value);
    return document.toString();
  }
  const section = document.getIn(yamlPath.slice(0, -1));
  const items = isMap(section) ? section.items : (isMap(document.contents) && document.contents.items) || [];
  const yamlPair = items.find((item) => isScalar(item.key) && item.key.value === yamlPath.at(-1));
  if (yamlPair !== undefined && isScalar(yamlPair.key) && !isSeq(section)) yamlPair.key.value = proposal.key;
  return document.toString();
}

describe("the value that a configuration error proposes", () => {
  const cases = MISTAKES.flatMap(({ what, written }) =>
    listProblems(written).flatMap((problem) => {
      const proposal = parseProposal(problem);
      return proposal === null ? [] : [{ what, written, problem, proposal, path: problem.path }];
    }),
  );

  test.each(cases)("removes the error when it is written to the file: $what, $path", (example) => {
    const { problem, proposal, written } = example;
    const remainingProblems = listProblems(applyProposal(written, problem, proposal));
    const messages = remainingProblems.filter(({ path }) => path === problem.path).map(({ message }) => message);
    expect(messages, problem.message).toEqual([]);
  });

  test("is tested for more than 45 messages", () => {
    expect(cases.length).toBeGreaterThan(45);
  });
});
