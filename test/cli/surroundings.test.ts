import { describe, expect, onTestFinished, test } from "vitest";
import { certificateFor } from "../connectors/certificate.ts";
import { startStub } from "../connectors/stub-server.ts";
import { onlyLine, workplace } from "./plenum.ts";

const SELF_SIGNED = certificateFor("localhost");

async function strangers() {
  const stub = await startStub({ host: "127.0.0.1", tls: SELF_SIGNED });
  onTestFinished(() => stub.stop());
  const url = stub.url.replace("127.0.0.1", "localhost");
  const sections = {
    sources: { main: { base_url: url, token: { file: "token" }, time_zone: "Europe/Oslo" } },
    sinks: {
      lake: { influxdb: { url, bucket: "b", token: { file: "lake-token" } } },
      hook: { webhook: { url, unsigned: true, allow_networks: ["127.0.0.0/8", "::1/128"] } },
    },
  };
  return { stub, sections };
}

describe("an environment that disables certificate checks or logs TLS keys", () => {
  test.each([{ NODE_TLS_REJECT_UNAUTHORIZED: "0" }, { NODE_OPTIONS: "--tls-keylog=keys.txt" }])(
    "makes every command that sends requests exit with code 78 before a connection: %j",
    async (environment) => {
      const { stub, sections } = await strangers();
      const cli = workplace(stub.url, environment);
      cli.token("lake-token");
      cli.configure(sections);
      for (const command of [["run"], ["check"], ["sites"], ["alarms"], ["read", "10001"], ["plan"]]) {
        const { code, stderr } = await cli.plenum(...command);
        expect([command, code]).toEqual([command, 78]);
        expect(stderr).toMatch(/NODE_TLS_REJECT_UNAUTHORIZED is 0|--tls-keylog of Node\.js/);
        onlyLine(stderr.replace(/^\(node:.*\n|^\(Use .*\n|^Warning: .*\n/gm, ""));
      }
      expect(stub.connections).toBe(0);
    },
    180_000,
  );

  test("does not prevent plenum writes stop", async () => {
    const cli = workplace("https://service.example", { NODE_TLS_REJECT_UNAUTHORIZED: "0" });
    expect((await cli.plenum("writes", "stop")).code).toBe(0);
  });
});
