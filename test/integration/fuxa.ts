import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { report } from "../packages/real-run.ts";
import { runProgram } from "../plenum-process.ts";
import { freePort, portOpen } from "../real-servers.ts";
import { READ_TAG, recipeBlock, runAgainst, startBuilding, TAGS, WRITTEN_TAG, watchTopics } from "./building.ts";

/** Runs the recipe in FUXA with 20 tags (`npm run fuxa:real [-- FOLDER]`). */

const install =
  "Install with: npm install --prefix FOLDER @frangoteam/fuxa@1.3.4 (it compiles SQLite, which takes some minutes)";
const MAIN = "node_modules/@frangoteam/fuxa/main.js";
const PATIENCE_S = 120;

/** Returns the tags of the recipe, with value and quality for each of 20 tags. */
function buildTags(): object {
  const { value, quality, ...others } = JSON.parse(recipeBlock("fuxa", "fuxa"));
  const tags: Record<string, object> = {};
  for (const [id, tag] of Object.entries<object>(others)) tags[id] = { ...tag, id };
  for (const tagId of TAGS) {
    for (const [name, tag] of Object.entries({ value, quality })) {
      const address = tag.address.replace(READ_TAG, tagId);
      tags[`${name}-${tagId}`] = { ...tag, address, id: `${name}-${tagId}` };
    }
  }
  return tags;
}

await runAgainst({ name: "plenum-fuxa 1.3.4", programs: [MAIN], install }, async (folder) => {
  const building = await startBuilding("fuxa");
  const home = join(building.folder, "fuxa");
  mkdirSync(join(home, "_appdata"), { recursive: true });
  writeFileSync(join(home, "_appdata/settings.js"), 'module.exports = { uiHost: "127.0.0.1", logApiLevel: "none" };\n');
  const port = await freePort();
  const url = `http://127.0.0.1:${port}/api`;
  const program = runProgram(process.execPath, [join(folder, MAIN), "--port", String(port), "--userDir", home], {
    cwd: home,
  });
  const request = async (path: string, body?: object) => {
    const post = { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) };
    const response = await fetch(`${url}/${path}`, body === undefined ? {} : post);
    if (!response.ok) throw new Error(`${path}: ${response.status} ${await response.text()}`);
    return response;
  };
  const displayed = async (...ids: readonly string[]): Promise<readonly unknown[]> => {
    const response = await request(`getTagValue?${new URLSearchParams({ ids: JSON.stringify(ids) })}`);
    return ((await response.json()) as readonly { readonly value?: unknown }[]).map(({ value }) => value);
  };
  const pollUntil = async (what: string, condition: () => Promise<boolean>): Promise<number> => {
    const startMs = performance.now();
    while (!(await condition())) {
      if (performance.now() - startMs > PATIENCE_S * 1_000) throw new Error(`Not within ${PATIENCE_S} s: ${what}`);
      await new Promise((resolve) => setTimeout(resolve, 200));
    }
    return (performance.now() - startMs) / 1_000;
  };
  try {
    await portOpen(port, null);
    const property = { address: building.broker.url };
    const device = { id: "plenum", name: "Plenum", type: "MQTTclient", enabled: true, polling: 500, property };
    const views = [{ id: "main", name: "Main", profile: {}, items: {}, variables: {}, svgcontent: "" }];
    await request("project", {
      version: "1.01",
      hmi: { views },
      devices: { plenum: { ...device, tags: buildTags() } },
    });
    const { payloads } = await watchTopics(building.client, "plenum/#");
    const worker = await building.startWorker();

    const values = TAGS.map((id) => `value-${id}`);
    await pollUntil("20 values", async () =>
      (await displayed(...values)).every((value) => value !== null && value !== undefined),
    );
    const published = TAGS.map((id) => payloads.get(`plenum/main/12/tag/${id}/value/plain`));
    const displayedValues = await displayed(...values);
    report(
      "shows 20 values as published",
      displayedValues.every((value, n) => value === Number(published[n])),
    );
    const qualities = await displayed(...TAGS.map((id) => `quality-${id}`));
    report(
      "shows 20 qualities",
      qualities.every((quality) => quality === "good"),
      qualities.join(),
    );
    report("shows the worker as online", (await displayed("worker"))[0] === "online");

    await request("setTagValue", { tags: [{ id: "setpoint", value: 21.5 }] });
    const isWritten = async () => (await displayed(`value-${WRITTEN_TAG}`))[0] === 21.5;
    const writtenS = await pollUntil("the written value", isWritten);
    const isInForce = building.simulator.truth.value(WRITTEN_TAG, Date.now()) === 21.5;
    report(`writes 21.5 and shows it after ${writtenS.toFixed(1)} s`, isInForce);

    building.changeToken({ sites: [1] });
    const isStale = async () => (await displayed(`quality-${READ_TAG}`))[0] === "stale";
    report(`shows a lost site as stale after ${(await pollUntil("stale", isStale)).toFixed(1)} s`, true);

    await worker.end("SIGKILL");
    const isOffline = async () => (await displayed("worker"))[0] === "offline";
    report(`shows the killed worker as offline after ${(await pollUntil("offline", isOffline)).toFixed(1)} s`, true);
  } catch (error) {
    process.stderr.write(program.output());
    throw error;
  } finally {
    await program.end("SIGKILL");
    await building.close();
  }
});
