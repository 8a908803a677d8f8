import { generateKeyPairSync } from "node:crypto";
import { copyFileSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { readApprovers } from "#src/engine/commands/approval/approval-files.ts";
import { collectWriteRules } from "#src/engine/commands/approval/check-approval.ts";
import { readApprovalState, signWriteRules } from "#src/engine/commands/approval/sign-write-approval.ts";
import { derivePublicKeyText } from "#src/engine/commands/approval/signature.ts";
import { CommandsConfig, WriteApprovalConfig } from "#src/engine/commands/config.ts";
import type { ConfigInput } from "./command-harness.ts";
import { allowed, openHarness, TAG, TAGS } from "./test-harness.ts";

function person() {
  const { privateKey } = generateKeyPairSync("ed25519");
  const pem = privateKey.export({ format: "pem", type: "pkcs8" }).toString();
  return { pem, publicKey: derivePublicKeyText(privateKey) };
}

const anna = person();
const boris = person();
const mallory = person();
const [, other = ""] = TAGS;
const UNAPPROVED = "rejected unapproved";

async function start(options: { readonly needed?: number } = {}) {
  const harness = await openHarness();
  const file = join(harness.folder, "approvals.json");
  const entry = allowed(TAG, { min_interval: "1s" });
  const approval = { approvers: { anna: anna.publicKey, boris: boris.publicKey }, needed: options.needed ?? 1, file };
  const config: ConfigInput = { allow: [entry], approval };
  let count = 0;

  function question(input: ConfigInput) {
    const parsed = CommandsConfig.parse({ enabled: true, ...input });
    const { approval: rule = null } = parsed;
    return {
      config: rule,
      rules: collectWriteRules(parsed, {}),
      pinned: readApprovers(harness.folder),
      nowMs: harness.clock.now(),
    };
  }

  return {
    harness,
    ...{ file, entry, approval, config, question },
    sign: (input: ConfigInput, name: string, { pem }: { readonly pem: string }) =>
      signWriteRules(question(input), name, pem, "key.pem"),
    attempt: async () => {
      count += 1;
      return harness.outcomeOf({ id: `attempt-${count}`, tag: TAG, value: 20 + (count % 4) + 0.5 });
    },
  };
}

describe("writing under the two-person rule", () => {
  test("is blocked, with one warning, until a valid approval enables it without a restart", async () => {
    const { harness, config, attempt, sign } = await start();
    await harness.restart(config);
    expect(await attempt()).toBe(UNAPPROVED);
    expect((await harness.results())[0]?.message).toBe(
      "What may be written is not approved as it stands: it is not approved yet (plenum writes approval).",
    );
    expect(harness.posts).toEqual([]);
    expect(harness.commands.notices()).toHaveLength(1);
    sign(config, "anna", anna);
    expect(harness.commands.notices()).toEqual([]);
    expect(await attempt()).toBe("confirmed");
  });

  test("is blocked after any change of the rules until the changed rules are approved", async () => {
    const { harness, config, entry, approval, attempt, sign } = await start();
    sign(config, "anna", anna);
    await harness.restart(config);
    expect(await attempt()).toBe("confirmed");
    const changed: readonly [string, ConfigInput][] = [
      ["a wider range", { ...config, allow: [{ ...entry, max: 25.000000000000004 }] }],
      ["a shorter interval", { ...config, allow: [{ ...entry, min_interval: "500ms" }] }],
      ["another tag", { ...config, allow: [entry, { ...entry, tag_id: other }] }],
      ["more writes", { ...config, max_per_hour: 601 }],
      ["a longer life", { ...config, max_ttl: "10m" }],
      ["a rehearsal", { ...config, rehearsal: true }],
      ["another approver", { ...config, approval: { ...approval, approvers: { anna: anna.publicKey } } }],
      ["no rule any more", { allow: [entry] }],
    ];
    for (const [what, input] of changed) {
      const posts = harness.posts.length;
      await harness.restart(input);
      expect(await attempt(), what).toBe(UNAPPROVED);
      expect(harness.posts.length, what).toBe(posts);
    }
    await harness.restart(config);
    expect(await attempt()).toBe("confirmed");
  });

  test("stays allowed when only the order of entries or the path of the approvals file changes", async () => {
    const { harness, entry, config, approval, attempt, sign, file } = await start();
    const second = { ...entry, tag_id: other };
    sign({ ...config, allow: [entry, second] }, "anna", anna);
    const elsewhere = `${file}.copy`;
    copyFileSync(file, elsewhere);
    await harness.restart({ allow: [second, entry], approval: { ...approval, file: elsewhere } });
    expect(await attempt()).toBe("confirmed");
  });

  test("rejects a queued command when the approval is withdrawn", async () => {
    const { harness, config, file, sign } = await start();
    sign(config, "anna", anna);
    await harness.restart(config);
    await harness.pauseService(60);
    await harness.execute({ id: "waiting", tag: TAG, value: 22, ttl_s: 300 }, {}, 1_000);
    rmSync(file);
    await harness.clock.advance(1_000);
    expect(await harness.outcomes()).toEqual(["waiting rejected unapproved"]);
    await harness.clock.advance(300_000);
    expect(harness.posts).toEqual([]);
  });
});

describe("a rule with two required approvers", () => {
  test("allows writing only after both approvers have signed the same rules", async () => {
    const { harness, config, attempt, sign } = await start({ needed: 2 });
    await harness.restart(config);
    sign(config, "anna", anna);
    sign(config, "anna", anna);
    expect(await attempt()).toBe(UNAPPROVED);
    await harness.clock.advance(60_000);
    sign(config, "boris", boris);
    expect(await attempt()).toBe("confirmed");
  });

  test("is rejected when two spellings of one key, or two names with one key, are configured", () => {
    const key = anna.publicKey;
    const refused = (approvers: Record<string, string>, needed = 1) =>
      WriteApprovalConfig.safeParse({ approvers, needed }).error?.issues[0]?.message;
    expect(refused({ a: key, b: key })).toContain("same key");
    expect(refused({ a: ` ${key}` })).toContain("Ed25519 public key");
    expect(refused({ a: key.replace("=", "") })).toContain("Ed25519 public key");
    const rsa = generateKeyPairSync("rsa", { modulusLength: 2048 }).publicKey;
    expect(refused({ a: rsa.export({ format: "der", type: "spki" }).toString("base64") })).toContain("Ed25519");
    expect(refused({ a: key }, 2)).toContain("only 1");
    expect(refused({})).toContain("at least one");
    expect(refused({ a: key })).toBeUndefined();
  });
});

describe("a person who can edit the configuration but has no approver's key", () => {
  test("cannot appoint another approver", async () => {
    const { harness, config, approval, attempt, sign } = await start();
    sign(config, "anna", anna);
    await harness.restart(config);
    expect(await attempt()).toBe("confirmed");
    const taken = { ...config, approval: { ...approval, approvers: { mallory: mallory.publicKey } } };
    sign(taken, "mallory", mallory);
    await harness.restart(taken);
    expect(await attempt()).toBe(UNAPPROVED);
    const { message } = (await harness.results()).at(-1) ?? {};
    expect(message).toContain("1 more of those who approved until now must approve it: anna, boris");
    sign(taken, "anna", anna);
    expect(await attempt()).toBe("confirmed");
  });

  test("cannot lower the number of approvers or remove the rule", async () => {
    const { harness, config, entry, approval, attempt, sign } = await start({ needed: 2 });
    sign(config, "anna", anna);
    sign(config, "boris", boris);
    await harness.restart(config);
    expect(await attempt()).toBe("confirmed");
    await harness.clock.advance(60_000);
    const lowered = { ...config, approval: { ...approval, needed: 1 } };
    sign(lowered, "anna", anna);
    await harness.restart(lowered);
    expect(await attempt()).toBe(UNAPPROVED);
    const without = { allow: [entry] };
    await harness.restart(without);
    expect(await attempt()).toBe(UNAPPROVED);
    sign(without, "anna", anna);
    expect(await attempt()).toBe(UNAPPROVED);
    sign(without, "boris", boris);
    expect(await attempt()).toBe("confirmed");
    expect(readApprovers(harness.folder)).toBeNull();
    rmSync(approval.file);
    await harness.restart(without);
    expect(await attempt()).toBe("confirmed");
  });

  test("cannot restore an older configuration with its approval", async () => {
    const { harness, config, entry, attempt, sign, file } = await start();
    sign(config, "anna", anna);
    await harness.restart(config);
    expect(await attempt()).toBe("confirmed");
    copyFileSync(file, `${file}.old`);
    await harness.clock.advance(3_600_000);
    const tightened = { ...config, allow: [{ ...entry, max: 24 }] };
    sign(tightened, "anna", anna);
    await harness.restart(tightened);
    expect(await attempt()).toBe("confirmed");
    copyFileSync(`${file}.old`, file);
    await harness.restart(config);
    expect(await attempt()).toBe(UNAPPROVED);
    expect((await harness.results()).at(-1)?.message).toContain("older than the last approval");
    sign(config, "boris", boris);
    expect(await attempt()).toBe("confirmed");
  });

  test("cannot change a character of the approvals file", async () => {
    const { harness, config, attempt, sign, file } = await start();
    sign(config, "anna", anna);
    await harness.restart(config);
    const text = readFileSync(file, "utf8");
    const { at, signatures } = JSON.parse(text) as { at: string; signatures: { anna: string } };
    const flipped = signatures.anna.startsWith("A") ? "B" : "A";
    const forgeries = [
      text.replace(at, "2026-11-20T12:00:00.001Z"),
      text.replace(signatures.anna, flipped + signatures.anna.slice(1)),
      text.replace(`"anna": "${signatures.anna}`, `"boris": "${signatures.anna}`),
      text.replace(signatures.anna, ""),
      text.slice(0, -10),
      "{}",
      "",
    ];
    for (const forged of forgeries) {
      expect(forged).not.toBe(text);
      writeFileSync(file, forged);
      expect(await attempt(), forged.slice(0, 40)).toBe(UNAPPROVED);
    }
    expect(harness.posts).toEqual([]);
    writeFileSync(file, text);
    expect(await attempt()).toBe("confirmed");
  });

  test("cannot use an approval that is dated more than five minutes ahead", async () => {
    const { harness, config, attempt, question } = await start();
    signWriteRules({ ...question(config), nowMs: harness.clock.now() + 600_000 }, "anna", anna.pem, "key.pem");
    await harness.restart(config);
    expect(await attempt()).toBe(UNAPPROVED);
    await harness.clock.advance(300_000);
    expect(await attempt()).toBe("confirmed");
  });
});

describe("the stored approval", () => {
  test("blocks writing when the file approvers.json is unreadable", async () => {
    const { harness, config, attempt, sign } = await start();
    sign(config, "anna", anna);
    await harness.restart(config);
    expect(await attempt()).toBe("confirmed");
    writeFileSync(join(harness.folder, "approvers.json"), "{");
    await harness.restart(config);
    expect(await attempt()).toBe(UNAPPROVED);
    expect((await harness.results()).at(-1)?.message).toMatch(/approvers\.json cannot be read/);
  });

  test("is recorded in the audit log when the approval begins and ends", async () => {
    const { harness, config, attempt, sign, file } = await start();
    await harness.restart(config);
    await attempt();
    sign(config, "anna", anna);
    await harness.clock.advance(2_000);
    rmSync(file);
    await harness.clock.advance(2_000);
    const steps = (await harness.audit()).map(({ step }) => step).filter((step) => step.startsWith("rules-"));
    expect(steps).toEqual(["rules-not-approved", "rules-approved", "rules-not-approved"]);
  });
});

describe("an approver", () => {
  test("sees the changes since the last valid approval, or all rules when no approval is valid", async () => {
    const { config, entry, question, sign, file } = await start();
    expect(readApprovalState(question(config)).changes.every((line) => line.startsWith("+ "))).toBe(true);
    sign(config, "anna", anna);
    expect(readApprovalState(question(config))).toMatchObject({ changes: [], approvedBy: ["anna"], refusing: null });
    const wider = { ...config, allow: [{ ...entry, max: 30 }] };
    const path = `commands.allow./${entry.tag_id}.max`;
    expect(readApprovalState(question(wider)).changes).toEqual([`- ${path} = 25`, `+ ${path} = 30`]);
    writeFileSync(file, readFileSync(file, "utf8").replace('"max": 25', '"max": 30'));
    expect(readApprovalState(question(wider)).changes.length).toBeGreaterThan(10);
  });

  test("can sign only with their own key", async () => {
    const { config, sign } = await start();
    expect(() => sign(config, "mallory", mallory)).toThrow("not one of the approvers");
    expect(() => sign(config, "anna", boris)).toThrow("not the key of anna");
    expect(() => sign(config, "anna", { pem: "no key" })).toThrow("holds no Ed25519 private key");
    expect(() => sign({ allow: [] }, "anna", anna)).toThrow("not one of the approvers");
  });
});
