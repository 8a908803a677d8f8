import { stringify } from "yaml";
import { anchor, code, page, table } from "./markdown.ts";

/** Generates the page of all configuration options, from the JSON schema. */

export const CONFIGURATION_FILE = "docs/reference/configuration.md";

export interface Schema {
  readonly type?: string | readonly string[];
  readonly title?: string;
  readonly description?: string;
  readonly default?: unknown;
  readonly const?: unknown;
  readonly enum?: readonly unknown[];
  readonly format?: string;
  readonly minimum?: number;
  readonly maximum?: number;
  readonly exclusiveMinimum?: number;
  readonly examples?: readonly unknown[];
  readonly properties?: Readonly<Record<string, Schema>>;
  readonly required?: readonly string[];
  readonly items?: Schema;
  readonly additionalProperties?: Schema | boolean;
  readonly anyOf?: readonly Schema[];
  readonly oneOf?: readonly Schema[];
  readonly allOf?: readonly Schema[];
}

export interface Option {
  /** Such as `sinks.*.file.folder`: `*` is a name that the user chooses, `[]` an entry of a list. */
  readonly path: string;
  readonly type: string;
  readonly default: string;
  readonly about: string;
}

/** Sections of the page. All other options are rows of the section around them. */
const SECTIONS: readonly (readonly [path: string, isEachOf?: true])[] = [
  ["state"],
  ["log"],
  ["status"],
  ["sources.*"],
  ["sources.*.quota"],
  ["sources.*.schedules"],
  ["sources.*.alarms"],
  ["sources.*.inventory"],
  ["sources.*.read[]"],
  ["sources.*.history[]"],
  ["sinks.*"],
  // One section per connector.
  ["sinks.*", true],
  ["commands"],
  ["commands.allow[]"],
];

export function configurationText(schema: Schema): string {
  const options = optionsOf(schema);
  const sections = SECTIONS.flatMap(([path, isEachOf]) =>
    isEachOf ? connectorsIn(schema).map((name) => `${path}.${name}`) : [path],
  );
  const sectionOf = (path: string) =>
    sections.filter((each) => isInside(path, each)).toSorted((a, b) => b.length - a.length)[0] ?? "";
  const optionsBySection = Map.groupBy(options, ({ path }) => sectionOf(path));
  const inOrder = ["", ...sections].filter((section) => optionsBySection.has(section));
  const links = inOrder.filter((section) => section !== "").map((section) => `[\`${section}\`](#${anchor(section)})`);
  return page(
    INTRODUCTION,
    `Sections: ${links.join(", ")}.`,
    ...inOrder.map((section) => {
      const rows = (optionsBySection.get(section) ?? []).map((option) => rowOf(option, section));
      const head = table(["Option", "Type", "Default", "Meaning"], rows);
      return section === "" ? head : page(`## ${section}`, head).trimEnd();
    }),
  );
}

/** Returns all options in the order of the schema. */
export function optionsOf(schema: Schema, path = ""): readonly Option[] {
  if (isSecret(schema)) return [];
  const inner = [schema, ...alternatives(schema)];
  const named = inner.flatMap(({ properties = {}, required = [] }) =>
    Object.entries(properties).map(([name, value]) => ({ name, value, isRequired: required.includes(name) })),
  );
  const own = [...Map.groupBy(named, ({ name }) => name)].flatMap(([name, forms]) => {
    const at = path === "" ? name : `${path}.${name}`;
    const isRequired = forms.every((form) => form.isRequired);
    const [first] = forms;
    if (first === undefined) return [];
    const type = unique(forms.map(({ value }) => typeText(value))).join(" or ");
    const about = unique(forms.map(({ value }) => value.description ?? "")).join(" ");
    const below = forms.flatMap(({ value }) => optionsOf(value, at));
    const known = new Set<string>();
    const option = {
      path: at,
      type,
      default: defaultText(first.value, isRequired),
      about: withExamples(first.value, about),
    };
    return [option, ...below.filter((option) => !known.has(option.path) && known.add(option.path))];
  });
  const lists = inner.flatMap(({ items }) => (items === undefined ? [] : optionsOf(items, `${path}[]`)));
  const names = inner.flatMap(({ additionalProperties: each }) =>
    typeof each === "object" ? optionsOf(each, `${path}.*`) : [],
  );
  return [...own, ...lists, ...names];
}

function alternatives(schema: Schema): readonly Schema[] {
  if (isSecret(schema)) return [];
  const { anyOf = [], oneOf = [], allOf = [] } = schema;
  return [...anyOf, ...oneOf, ...allOf].flatMap((each) => [each, ...alternatives(each)]);
}

/** True for a secret reference: `{file: …}` or `{env: …}`. */
function isSecret({ anyOf = [] }: Schema): boolean {
  const keys = anyOf.flatMap(({ properties = {} }) => Object.keys(properties));
  return keys.length === 2 && keys.includes("file") && keys.includes("env");
}

function typeText(schema: Schema): string {
  if (isSecret(schema)) return "secret: `{file: …}` or `{env: …}`";
  const forms = [...(schema.anyOf ?? []), ...(schema.oneOf ?? []), ...(schema.allOf ?? [])];
  if (forms.length > 0) return unique(forms.map(typeText)).join(" or ");
  if (schema.const !== undefined) return code(formatYaml(schema.const));
  if (schema.enum !== undefined) return schema.enum.map((each) => code(formatYaml(each))).join(", ");
  switch (schema.type) {
    case "array":
      return `list of ${typeText(schema.items ?? {})}`;
    case "object":
      return typeof schema.additionalProperties === "object" ? "entries by name" : "section";
    case "string":
      return schema.title ?? (schema.format === "uri" ? "address" : (FORMATS[schema.format ?? ""] ?? "text"));
    case "integer":
    case "number":
      return `${schema.type}${rangeText(schema)}`;
    default:
      return schema.type === undefined ? "anything" : [schema.type].flat().join(" or ");
  }
}

const FORMATS: Readonly<Record<string, string>> = { ipv4: "IPv4 address", ipv6: "IPv6 address" };

/** Describes the range of a number. Omits the bounds that every safe integer has. */
function rangeText({ minimum, maximum, exclusiveMinimum }: Schema): string {
  const explicitBound = (bound: number | undefined) =>
    bound === undefined || Math.abs(bound) === Number.MAX_SAFE_INTEGER ? null : bound;
  const from = explicitBound(minimum);
  const to = explicitBound(maximum);
  const exclusiveFrom = explicitBound(exclusiveMinimum);
  const parts = [
    from === null ? (exclusiveFrom === null ? "" : `above ${exclusiveFrom}`) : `from ${from}`,
    to === null ? "" : `to ${to}`,
  ].filter((part) => part !== "");
  return parts.length === 0 ? "" : ` ${parts.join(" ")}`;
}

function defaultText(schema: Schema, isRequired: boolean): string {
  if (schema.default === undefined) {
    if (isRequired) return "**required**";
    return /\bThe default is the connector's\b/.test(schema.description ?? "") ? "the connector's" : "none";
  }
  const isSection = JSON.stringify(schema.default) === "{}";
  return isSection ? "" : code(formatYaml(schema.default));
}

function formatYaml(value: unknown): string {
  return stringify(value, { collectionStyle: "flow", lineWidth: 0 }).trim();
}

function withExamples({ examples = [], title }: Schema, about: string): string {
  // The page explains the format of durations once.
  if (title !== undefined || examples.length === 0) return about;
  const shown = examples.map((each) => code(formatYaml(each))).join(", ");
  return `${about} Such as ${shown}.`;
}

/** Returns the names of the connectors: properties of a sink that are objects without a default. */
function connectorsIn(schema: Schema): readonly string[] {
  const sinks = schema.properties?.sinks?.additionalProperties;
  if (typeof sinks !== "object") return [];
  const { properties = {} } = sinks;
  return Object.entries(properties).flatMap(([name, value]) =>
    value.default === undefined && (value.type === "object" || alternatives(value).some(isObject)) ? [name] : [],
  );
}

function isObject({ type }: Schema): boolean {
  return type === "object";
}

function isInside(path: string, section: string): boolean {
  return path.startsWith(`${section}.`) || path.startsWith(`${section}[`);
}

function rowOf({ path, type, default: defaultValue, about }: Option, section: string): readonly string[] {
  const short = section === "" ? path : path.slice(section.length + 1);
  return [`<a id="${optionAnchor(path)}"></a>${code(short)}`, type, defaultValue, about];
}

/** Returns the anchor of an option: `sources-quota-polite` for `sources.*.quota.polite`. */
export function optionAnchor(path: string): string {
  return path.replaceAll(".*", "").replaceAll("[]", "").replaceAll(".", "-");
}

function unique(texts: readonly string[]): readonly string[] {
  return [...new Set(texts)].filter((text) => text !== "");
}

const INTRODUCTION = `# Configuration

All options of \`plenum.yaml\`, generated by \`npm run reference\` from the schema. [config/example.yaml](../../config/example.yaml)
shows every option with a comment. Editors complete options with [config/schema.json](../../config/schema.json);
\`plenum check\` names file, line and column of a mistake.

In a path, \`*\` is a name that you choose and \`[]\` an entry of a list. A **duration** is \`500ms\`, \`30s\`, \`5m\`, \`24h\`, \`7d\`
or \`1h30m\`. A **secret** is the name of a file or environment variable, never the secret itself. Plenum replaces \`\${NAME}\`,
\`\${NAME:-default}\` and \`\${NAME:?message}\` from the environment. An optional option without a default is unset.`;
