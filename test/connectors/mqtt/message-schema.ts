import { readFileSync } from "node:fs";
import { join } from "node:path";
import { Ajv2020 } from "ajv/dist/2020.js";
import { MQTT_SCHEMA_FILE } from "../../../tools/reference.ts";

const schema = JSON.parse(readFileSync(join(import.meta.dirname, "../../..", MQTT_SCHEMA_FILE), "utf8"));
const ajv = new Ajv2020();
ajv.addSchema(schema, "messages");

export const SCHEMA_NAMES: readonly string[] = Object.keys(schema.$defs);

/** Returns null for a message that matches a schema of docs/reference/mqtt.schema.json; without a name, any of them. */
export function findSchemaProblem(text: string, name?: string): string | null {
  const validate = ajv.getSchema(name === undefined ? "messages" : `messages#/$defs/${name}`);
  if (validate === undefined) return `there is no schema ${name}`;
  return validate(JSON.parse(text)) === true ? null : `${ajv.errorsText(validate.errors)}: ${text}`;
}
