import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { freePort } from "../real-servers.ts";
import { localHook, simulatedServer, workplace } from "./plenum.ts";

const TELLS = `--import data:text/javascript,${encodeURIComponent(
  `import { writeFileSync } from "node:fs";
   process.on("exit", () => writeFileSync(process.argv[2] + ".loaded", process.moduleLoadList.join("\\n")));`,
)}`;

/** Node.js's own copy: 760 kB of source that is compiled at each start. */
const NODES_OWN = /internal\/deps\/undici\/undici/;

test("a process loads one copy of undici while its page, control socket and sinks are in use", async () => {
  const service = await simulatedServer();
  const cli = workplace(service.url, { NODE_OPTIONS: TELLS });
  const port = await freePort();
  const closedAddress = `http://127.0.0.1:${await freePort()}`;
  const from = "beginning";
  cli.configure({
    status: { port },
    sinks: {
      lake: { influxdb: { url: closedAddress, bucket: "b" }, from },
      hook: { webhook: localHook(closedAddress), from },
    },
  });
  const worker = await cli.run();
  for (const sink of ["lake", "hook"]) await worker.waitForOutput(`"sink":"${sink}"`);
  const page = await fetch(`http://127.0.0.1:${port}/`);
  expect(page.status).toBe(200);
  expect((await page.text()).length).toBeGreaterThan(100);
  expect((await cli.plenum("sites")).code).toBe(0);
  await worker.stop();
  for (const command of ["run", "sites"]) {
    const loadedModules = readFileSync(cli.path(`${command}.loaded`), "utf8");
    expect(loadedModules).toMatch(/^NativeModule http$/m);
    expect(loadedModules).not.toMatch(NODES_OWN);
  }
});
