import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { report } from "../packages/real-run.ts";
import { runProgram } from "../plenum-process.ts";
import { freePort } from "../real-servers.ts";
import { PROMISE_S, READ_TAG, recipeBlock, runAgainst, startBuilding, WRITTEN_TAG, watchTopics } from "./building.ts";

/** Runs the recipe in Home Assistant and causes each loss (`npm run homeassistant:real [-- FOLDER]`). */

const install =
  "Install with: python3.13 -m venv FOLDER && FOLDER/bin/pip install --no-deps homeassistant==2025.4.4 && FOLDER/bin/pip install -c FOLDER/lib/python3.13/site-packages/homeassistant/package_constraints.txt homeassistant home-assistant-frontend paho-mqtt";
/** Seconds for the rounding of due times, the broker and Home Assistant. */
const TOLERANCE_S = 1;
const PATIENCE_S = 180;
const SENSOR = "ha/sensor/room_temperature/state";
const NUMBER = "ha/number/set_point/state";

function writeConfiguration(folder: string, httpPort: number, brokerPort: number): void {
  mkdirSync(join(folder, ".storage"), { recursive: true });
  // `mqtt_statestream` publishes states of entities, so the check needs no login.
  const own = `homeassistant: { name: test, time_zone: Europe/Oslo, unit_system: metric }
http: { server_host: 127.0.0.1, server_port: ${httpPort} }
mqtt_statestream: { base_topic: ha }
automation:
  - triggers: [{ trigger: mqtt, topic: set }]
    actions: [{ action: number.set_value, target: { entity_id: number.set_point }, data: { value: "{{ trigger.payload }}" } }]
`;
  writeFileSync(join(folder, "configuration.yaml"), own + recipeBlock("home-assistant", "home assistant"));
  const at = "2026-01-01T00:00:00+00:00";
  const entry = {
    ...{ entry_id: "plenum", domain: "mqtt", title: "broker", source: "user", version: 1, minor_version: 2 },
    ...{ unique_id: null, options: {}, discovery_keys: {}, subentries: [], created_at: at, modified_at: at },
    ...{ disabled_by: null, pref_disable_new_entities: false, pref_disable_polling: false },
    data: { broker: "127.0.0.1", port: brokerPort, discovery: false },
  };
  const stored = { version: 1, minor_version: 5, key: "core.config_entries", data: { entries: [entry] } };
  writeFileSync(join(folder, ".storage/core.config_entries"), JSON.stringify(stored));
}

await runAgainst({ name: "plenum-home-assistant 2025.4.4", programs: ["bin/hass"], install }, async (folder) => {
  const building = await startBuilding("home-assistant");
  const home = join(building.folder, "home-assistant");
  writeConfiguration(home, await freePort(), building.broker.port);
  const program = runProgram(join(folder, "bin/hass"), ["--config", home, "--skip-pip"]);
  try {
    const { payloads, until } = await watchTopics(building.client, "ha/#", "plenum/#");
    let worker = await building.startWorker();
    const isDisplayed = () => !["unavailable", "unknown", undefined].includes(payloads.get(SENSOR));
    const awaitValue = () => until("a value of the sensor", PATIENCE_S, isDisplayed);
    await awaitValue();
    const { value } = JSON.parse(payloads.get(`plenum/main/12/tag/${READ_TAG}/value`) ?? "{}");
    report(`the sensor shows ${payloads.get(SENSOR)}`, Number(payloads.get(SENSOR)) === value, String(value));

    await until("the set-point", PATIENCE_S, () => payloads.get(NUMBER) === "20.0");
    await building.client.publishAsync("set", "21.5");
    const writtenS = await until("the written set-point", PATIENCE_S, () => payloads.get(NUMBER) === "21.5");
    const isWritten = building.simulator.truth.value(WRITTEN_TAG, Date.now()) === 21.5;
    report(`the number writes 21.5 and shows it after ${writtenS.toFixed(1)} s`, isWritten);

    const losses: Record<string, readonly [lose: () => unknown, restore: () => unknown]> = {
      "the token loses the site": [
        () => building.changeToken({ sites: [1] }),
        () => building.changeToken({ sites: [12] }),
      ],
      "a 403 on reads": [
        () => building.changeToken({ abilities: ["read:alarms", "read:gateways"] }),
        () => building.changeToken({ abilities: ["*"] }),
      ],
      "a dead source": [building.stopService, building.restartService],
      "kill -9": [
        () => worker.end("SIGKILL"),
        async () => {
          worker = await building.startWorker();
        },
      ],
    };
    for (const [loss, [lose, restore]] of Object.entries(losses)) {
      const isUnavailable = () => payloads.get(SENSOR) === "unavailable";
      const unavailable = until(`unavailable after ${loss}`, PATIENCE_S, isUnavailable);
      await lose();
      const lostS = await unavailable;
      report(
        `${loss}: unavailable after ${lostS.toFixed(1)} s`,
        lostS <= PROMISE_S + TOLERANCE_S,
        `Limit ${PROMISE_S} s.`,
      );
      await restore();
      await awaitValue();
    }
  } catch (error) {
    process.stderr.write(program.output());
    throw error;
  } finally {
    await program.end("SIGKILL");
    await building.close();
  }
});
