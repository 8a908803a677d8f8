import { execFileSync } from "node:child_process";
import { readdirSync } from "node:fs";
import { join } from "node:path";
import PostalMime from "postal-mime";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { EmailConfig } from "#connectors/email/config.ts";
import { createEmailReceiver } from "#connectors/email/receiver.ts";
import { certificateFor } from "../connectors/certificate.ts";
import { contextFor, never } from "../connectors/context.ts";
import { absent, programPath, type RealServer, startExim } from "../real-servers.ts";
import { secretFile } from "./receiver-helpers.ts";
import { alarmMessage, endMessage } from "./sent-samples.ts";

/** Against a real mail server: what it has taken is read from its queue. */
describe.skipIf(absent("exim4"))("email: Debian's Exim", () => {
  const certificate = certificateFor("localhost");
  let server: RealServer;
  beforeAll(async () => {
    server = await startExim(certificate);
  });
  afterAll(() => server.stop());

  function receiver() {
    const config = EmailConfig.parse({
      host: "localhost",
      port: server.port,
      user: "plenum",
      password: secretFile("plenum"),
      from: "Plenum <plenum@example.com>",
      to: ["operations@example.com"],
      ca_file: certificate.path,
    });
    return createEmailReceiver(config, contextFor("mail"));
  }

  async function queue() {
    const names = readdirSync(join(server.folder, "spool"), { recursive: true }).map(String);
    const ids = names.flatMap((name) => /([^/]+)-H$/.exec(name)?.[1] ?? []);
    const mails = ids.toSorted((a, b) => (a < b ? -1 : 1)).map((id) => runExim("-Mvc", id));
    return await Promise.all(mails.map((mail) => PostalMime.parse(mail)));
  }

  function runExim(...options: readonly string[]): string {
    const all = ["-C", join(server.folder, "exim.conf"), ...options];
    return execFileSync(programPath("exim4") ?? "", all, { stdio: ["ignore", "pipe", "ignore"] }).toString();
  }

  test("accepts an alarm and its end by STARTTLS as one thread", async () => {
    await receiver().probe(never());
    expect(await queue()).toEqual([]);
    const reference = await receiver().open(alarmMessage({}, { description: "Kallt – 温度\n.\nslut" }), never());
    await receiver().close(endMessage(), reference, never());
    const [opening, ending] = await queue();
    expect([opening?.subject, ending?.subject]).toEqual([
      "Active: Supply temperature low, Kvarnholmen 4",
      "Resolved: Supply temperature low, Kvarnholmen 4",
    ]);
    expect(ending?.references).toBe(`<${alarmMessage().key}@example.com>`);
    expect(ending?.references).toBe(opening?.references);
    expect(opening?.text).toContain("Kallt – 温度\n.\nslut");
    expect(opening?.headers.find(({ key }) => key === "received")?.value).toMatch(/with esmtpsa/);
  });
});
