import { z } from "zod";
import { ConfigError } from "../../src/core/errors/errors.ts";
import { printable } from "../../src/core/values/printable.ts";
import { cut } from "../shared/receiver/text.ts";
import { type Jira, readAs, wordsOf } from "./api.ts";
import { type JiraConfig, OWN_FIELDS } from "./config.ts";

/** So many records a page: those of fields with long lists of values are large. */
const PAGE = 20;
/** More pages than any project has. */
const MAX_PAGES = 50;

const Permissions = z.object({
  permissions: z.record(z.string(), z.object({ havePermission: z.boolean() })),
});
const Type = z.object({ id: z.string(), name: z.string() });
const Field = z.object({
  fieldId: z.string(),
  name: z.string(),
  required: z.boolean(),
  hasDefaultValue: z.boolean().default(false),
});

/** What has to be right at Jira before anything can be told there. */
export interface Checks {
  /** Throws `ConfigError` where the account may not see the project. */
  seesProject(signal: AbortSignal): Promise<void>;
  /** Throws `ConfigError` where an issue could not be created. */
  probe(signal: AbortSignal): Promise<void>;
}

export function createChecks(config: JiraConfig, jira: Jira): Checks {
  const project = encodeURIComponent(config.project);

  async function seesProject(signal: AbortSignal): Promise<void> {
    const path = `/mypermissions?projectKey=${project}&permissions=BROWSE_PROJECTS`;
    const answer = await jira.ask({ method: "GET", path, allow: [404] }, signal);
    const { permissions } =
      answer.status === 404 ? { permissions: {} } : readAs(answer, Permissions, jira.origin);
    if (permissions.BROWSE_PROJECTS?.havePermission === true) return;
    throw new ConfigError(`${jira.origin} does not show us the project ${config.project}.`, {
      reason: "forbidden",
      field: "project",
      hint: 'Check the key of the project, and give the account the permission "Browse projects" there.',
    });
  }

  /** All records of a list: Cloud calls it after what it holds, Data Center `values`. */
  async function all<T>(path: string, name: string, item: z.ZodType<T>, signal: AbortSignal): Promise<T[]> {
    const Page = z
      .object({ values: z.array(item).optional(), total: z.number().optional() })
      .catchall(z.unknown());
    const records: T[] = [];
    for (let page = 0; page < MAX_PAGES; page += 1) {
      const question = {
        method: "GET",
        path: `${path}?startAt=${records.length}&maxResults=${PAGE}`,
      } as const;
      const answer = await jira.ask({ ...question, allow: [400, 404] }, signal);
      if (answer.status >= 400) throw noSuchProject(wordsOf(answer));
      const { values, total, ...rest } = readAs(answer, Page, jira.origin);
      const shown = values ?? readAs({ ...answer, json: rest[name] }, z.array(item), jira.origin);
      records.push(...shown);
      if (shown.length === 0 || (total !== undefined && records.length >= total)) break;
    }
    return records;
  }

  function noSuchProject(words: string): ConfigError {
    return new ConfigError(
      `${jira.origin} lets us create nothing in the project ${config.project}. ${words}`.trim(),
      {
        reason: "forbidden",
        field: "project",
        hint: 'Check the key of the project, and give the account the permission "Create issues" there.',
      },
    );
  }

  async function typeId(signal: AbortSignal): Promise<string> {
    const types = await all(`/issue/createmeta/${project}/issuetypes`, "issueTypes", Type, signal);
    if (types.length === 0) throw noSuchProject("");
    const type = types.find(({ name }) => name.toLowerCase() === config.issue_type.toLowerCase());
    if (type !== undefined) return type.id;
    const names = types.map(({ name }) => printable(name)).join(", ");
    throw new ConfigError(`The project ${config.project} has no type of issue named ${config.issue_type}.`, {
      field: "issue_type",
      hint: cut(`It has ${names}.`, 300),
    });
  }

  return {
    seesProject,

    async probe(signal) {
      await jira.read({ method: "GET", path: "/myself" }, z.object({ displayName: z.string() }), signal);
      await seesProject(signal);
      const path = `/issue/createmeta/${project}/issuetypes/${encodeURIComponent(await typeId(signal))}`;
      const fields = await all(path, "fields", Field, signal);
      const fault = faultOf(config, fields);
      if (fault !== null) throw fault;
    },
  };
}

function faultOf(config: JiraConfig, fields: readonly z.infer<typeof Field>[]): ConfigError | null {
  const filled = new Set([...OWN_FIELDS, ...Object.keys(config.fields)]);
  if (Object.keys(config.priority).length > 0) filled.add("priority");
  const missing = fields.filter(
    // Jira fills in who reported it: the account itself.
    ({ fieldId, required, hasDefaultValue }) =>
      required && !hasDefaultValue && !filled.has(fieldId) && fieldId !== "reporter",
  );
  if (missing.length > 0) {
    const names = missing.map(({ fieldId, name }) => `${printable(name)} (${printable(fieldId)})`).join(", ");
    return new ConfigError(
      `The project ${config.project} asks for fields that nobody fills: ${cut(names, 300)}.`,
      {
        reason: "validation",
        field: "fields",
        hint: "Give each a value under `fields`, or make it optional in Jira.",
      },
    );
  }
  const shown = new Set(["project", "issuetype", ...fields.map(({ fieldId }) => fieldId)]);
  const absent = [...filled].filter((id) => !shown.has(id));
  if (absent.length === 0) return null;
  return new ConfigError(`New issues of ${config.project} have no field ${absent.join(", ")}.`, {
    reason: "validation",
    field: "fields",
    hint: "Put it on the screen for new issues in Jira, or take it out of the options.",
  });
}
