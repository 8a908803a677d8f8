import { accessSync, constants, mkdirSync, realpathSync, writeFileSync } from "node:fs";
import { delimiter, join } from "node:path";

/** Returns the program `node-red` on the path; null without one. */
export function nodeRedProgram(path = process.env.PATH ?? ""): string | null {
  for (const folder of path.split(delimiter)) {
    const file = join(folder, "node-red");
    try {
      accessSync(file, constants.X_OK);
      return realpathSync(file);
    } catch {
      // Not in this folder.
    }
  }
  return null;
}

export interface NodeRedFlow {
  readonly sources: number;
  readonly service: string;
  readonly mqtt: string;
  readonly influx: string;
}

const IDS = Array.from({ length: 20 }, (_, n) => String(10_001 + n)).join(",");
const EVERY_S = 3;

/** Writes the folder of a Node-RED that runs the flow, and answers the arguments for it. */
export function writeNodeRed(folder: string, flow: NodeRedFlow): readonly string[] {
  mkdirSync(folder, { recursive: true });
  const settings = join(folder, "settings.js");
  writeFileSync(
    settings,
    `module.exports = { flowFile: "flows.json", httpAdminRoot: false, httpNodeRoot: false, disableEditor: true,
      telemetry: { enabled: false, updateNotification: false }, logging: { console: { level: "info" } } };\n`,
  );
  writeFileSync(join(folder, "flows.json"), JSON.stringify(buildNodes(flow)));
  return ["--userDir", folder, "--settings", settings];
}

function buildNodes({ sources, service, mqtt, influx }: NodeRedFlow): readonly object[] {
  const z = "tab";
  const { hostname, port } = new URL(mqtt);
  return [
    { id: z, type: "tab", label: "bench" },
    {
      ...{ id: "broker", type: "mqtt-broker", broker: hostname, port, clientid: "node-red", protocolVersion: "5" },
      keepalive: "60",
    },
    ...Array.from({ length: sources }, (_, n) => ({
      id: `every-${n}`,
      z,
      type: "inject",
      props: [{ p: "source", v: `s${n}`, vt: "str" }],
      repeat: String(EVERY_S),
      once: true,
      onceDelay: String(1 + (n * EVERY_S) / sources),
      wires: [["ask"]],
    })),
    {
      id: "ask",
      z,
      type: "function",
      func: `msg.url = "${service}/" + msg.source + "/api/v1/tags/read?tags=${IDS}";
        msg.headers = { authorization: "Bearer token", accept: "application/json" };
        return msg;`,
      wires: [["read"]],
    },
    { id: "read", z, type: "http request", method: "GET", ret: "obj", persist: true, wires: [["tell"]] },
    {
      id: "tell",
      z,
      type: "function",
      outputs: 2,
      func: `const ms = Date.now(), time = new Date(ms).toISOString(), source = msg.source;
        const messages = msg.payload.data.map(({ id, value, attributes }) => ({
          topic: "nodered/" + source + "/1/tag/" + id + "/value",
          payload: JSON.stringify({ value, quality: "good", time, tag: { id, ...attributes } }),
        }));
        const lines = msg.payload.data.map(({ id, value }) => "tag,source=" + source + ",tag=" + id + " value=" + value + " " + ms);
        return [messages, { url: "${influx}/write?db=nodered&precision=ms", payload: lines.join("\\n") }];`,
      wires: [["publish"], ["post"]],
    },
    { id: "publish", z, type: "mqtt out", qos: "1", retain: "true", broker: "broker", wires: [] },
    { id: "post", z, type: "http request", method: "POST", ret: "txt", persist: true, wires: [[]] },
  ];
}
