import { existsSync } from "node:fs";
import { describe, expect, test } from "vitest";
import { completeProgram } from "./complete-program.ts";
import { onlyLine, servedHarness } from "./plenum.ts";

const PAST_RANGE = "--from 2d --to 1d";
const NO_SOURCE = /^There is no source nowhere; known are: main\.$/;
const NO_SINK = /^There is no sink nowhere; known are: files\.$/;
const NO_TAG = /^The state knows no tag 99999999 of main\. `plenum tags` lists the tags\.$/;
const LOCK = "--owner anna --reason x --for 1h";
const NO_SITE = /^The state knows no site 999 of main\. `plenum sites` lists the sites\.$/;
const NOT_SEEN = /^The token sees no site 999; it sees 1 \(.*\), 6 \(.*\)\. `plenum sites` lists them\.$/;
const UNLISTED = /^Tag 99999999 is not among the 141 tags of main, .*; nothing was asked\./;
const HELP_HINT = "(plenum --help lists the commands)";

const CASES: readonly (readonly [typed: string, code: number, sentence: RegExp])[] = [
  ["sites --source nowhere", 78, NO_SOURCE],
  ["alarms --source nowhere", 78, NO_SOURCE],
  ["alarms --site 999", 78, NOT_SEEN],
  ["alarms --status gone", 2, /'gone' is invalid\. Allowed choices are active/],
  ["alarms --priority Q", 2, /'Q' is invalid\. Allowed choices are A, B, C/],
  ["tags nosuch", 78, /^There is no tag nosuch among the 141 tags of main\./],
  ["tags --source nowhere", 78, NO_SOURCE],
  ["names --source nowhere", 78, NO_SOURCE],
  ["tags --site 999", 78, NOT_SEEN],
  ["tags --unit furlong", 78, /^No tag has the unit "furlong"; there are kWh/],
  ["tags --system 99999999", 78, /^(The service knows no|No tag that fits belongs to the) system 99999999\./],
  ["tags --class nosuch", 78, /^There is no class nosuch/],
  ["gateways nosuch", 78, /^There is no gateway nosuch among the \d+ gateways of main\./],
  ["gateways --source nowhere", 78, NO_SOURCE],
  ["gateways --site 999", 78, NOT_SEEN],
  ["hosts nosuch", 78, /^There is no host nosuch among/],
  ["hosts --source nowhere", 78, NO_SOURCE],
  ["hosts --site 999", 78, NOT_SEEN],
  ["systems nosuch", 78, /^There is no system nosuch among/],
  ["systems --source nowhere", 78, NO_SOURCE],
  ["systems --site 999", 78, NOT_SEEN],
  ["read 10001 99999999", 78, UNLISTED],
  ["read 10001 --source nowhere", 78, NO_SOURCE],
  ["history 10001 99999999", 78, UNLISTED],
  ["history 10001 --source nowhere", 78, NO_SOURCE],
  ["history 10001 --zone Europe/Nowhere", 2, /'Europe\/Nowhere' is invalid/],
  [`history ${[...Array(21).keys()].join(" ")}`, 2, /At most 20 tags at once\./],
  ["history 10001 --resolution 7y", 2, /'7y' is invalid\. Allowed choices are/],
  ["write 10001 1 --source nowhere", 78, NO_SOURCE],
  ["events --tag 99999999", 78, NO_TAG],
  ["events --site 999", 78, NO_SITE],
  ["events --source nowhere", 78, NO_SOURCE],
  ["events --kind alarm-nosuch", 78, /^No event kind is called alarm-nosuch\./],
  ["events --priority Q", 78, /^No alarm has a priority Q; known are A, B, C\.$/],
  ["outbox dead nowhere", 78, NO_SINK],
  ["outbox resend nowhere", 78, NO_SINK],
  ["outbox resend files 17", 78, /^The sink files has no dead letter 17\. `plenum outbox dead` lists them/],
  ["outbox discard nowhere", 78, NO_SINK],
  ["outbox discard files 17 18", 78, /^The sink files has no dead letters 17, 18\./],
  ["outbox replay nowhere --since 1h", 78, NO_SINK],
  ["outbox snapshot nowhere", 78, NO_SINK],
  ["outbox revive nowhere", 78, NO_SINK],
  ["sink test nowhere", 78, NO_SINK],
  ["silence add --source nowhere --for 1h --reason x", 78, NO_SOURCE],
  ["silence add --site 999 --for 1h --reason x", 78, NO_SITE],
  ["silence add --alarm nosuch --for 1h --reason x", 78, /^The state knows no alarm nosuch of main\./],
  ["silence add --priority B,D --for 1h --reason x", 78, /^No alarm has a priority D; known are A, B, C\.$/],
  ["silence add --priority q --for 1h --reason x", 2, /'q' is invalid\. Write priorities as capital letters/],
  ["silence end nosuch", 78, /^There is no silence nosuch; `plenum silence` shows/],
  ["writes approval", 78, /^There is no two-person rule\. Name approvers under commands\.approval\.$/],
  ["writes approve nobody --key token", 78, /^There is no two-person rule\./],
  ["writes second nosuch 1 --source nowhere", 78, NO_SOURCE],
  [`writes lock --tag 99999999 ${LOCK}`, 78, NO_TAG],
  [`writes lock --site 999 ${LOCK}`, 78, NO_SITE],
  [`writes lock --system nosuch ${LOCK}`, 78, /^The state knows no tag of a system nosuch, so a lock of it/],
  [`writes lock --site 1 --source nowhere ${LOCK}`, 78, NO_SOURCE],
  ["writes unlock --tag 99999999", 78, /^There is no lock/],
  ["writes unlock --site 999", 78, /^There is no lock/],
  ["writes unlock --system nosuch", 78, /^There is no lock/],
  ["writes unlock --site 1 --source nowhere", 78, NO_SOURCE],
  ["audit show --source nowhere", 78, NO_SOURCE],
  ["audit show --command nosuch", 78, /^The audit log has no record of a command nosuch\.$/],
  ["audit show --tag 88888888", 78, /^The audit log has no record about a tag 88888888\.$/],
  ["audit show --kind nosuch*", 78, /^The audit log has no record of a step nosuch\*\. Its steps are .*rejected/],
  ["plan --source nowhere", 78, NO_SOURCE],
  ["gaps 10001 99999999", 78, NO_TAG],
  ["gaps --source nowhere", 78, NO_SOURCE],
  ["complete --source nowhere", 78, NO_SOURCE],
  ["complete --site 999", 78, /^No history of a site 999 is followed in main\./],
  [`backfill 10001 99999999 ${PAST_RANGE}`, 78, NO_TAG],
  [`backfill ${PAST_RANGE} --site 999`, 78, NO_SITE],
  [`backfill ${PAST_RANGE} --name nosuch*`, 78, /^No known tag fits this selection\./],
  [`backfill ${PAST_RANGE} --unit furlong`, 78, /^No known tag fits this selection\./],
  [`backfill ${PAST_RANGE} --source nowhere`, 78, NO_SOURCE],
  [`backfill ${PAST_RANGE} --resolution 7y`, 2, /'7y' is invalid\. Allowed choices are/],
  ["backfill --from yesterday", 2, /Write a time as 2026-03-01T00:00:00Z, or an age as 365d\./],
  ["backfill --from 1d --to someday", 2, /Write a time as 2026-03-01T00:00:00Z, or an age as 365d\./],
  ["backfill --from 1d --site north", 2, /Write a whole number\./],
  ["backfill --cancel nosuch", 78, /^There is no order nosuch\. `plenum backfill` lists them\.$/],
  ["explain nosuch", 78, /^The state knows neither a tag nor an alarm nosuch of main\./],
  ["explain 10001 --source nowhere", 78, NO_SOURCE],
  ["state salvage nosuch", 78, /^There is no file nosuch\.$/],
  ["help nosuch", 2, /unknown command 'nosuch'/],
  ["help outbox nosuch", 2, /nosuch/],
  ["nosuch", 2, /unknown command 'nosuch'/],
];

const WITH_WORKER: typeof CASES = [
  ["write 99999999 1", 1, /^The command ended as rejected\.$/],
  ["writes second nosuch 1", 1, /^The command ended as rejected\.$/],
];

/** export.test.ts has the messages of `export` about tags and sites. */
const WITHOUT_WORKER: typeof CASES = [
  [`export --to-folder out ${PAST_RANGE} --source nowhere`, 78, NO_SOURCE],
  [`export --to-folder out ${PAST_RANGE} --format csv`, 2, /'csv' is invalid\. Allowed choices are parquet/],
  [`export --to-folder out ${PAST_RANGE} --resolution 7y`, 2, /'7y' is invalid\. Allowed choices are/],
];

test("the tables of this test contain every command that takes a name", async () => {
  const names = /^<?(id|name|tag|sink|letters?|unit|status|size|file|pattern|format)[.>]*>?$/;
  const newNames =
    /^(init|demo|run|simulate|check|audit verify|state move)\b|export --(site|name|unit)|silence add --name|writes lock --owner|write --id|--ca-file|--key/;
  const lines = [...CASES, ...WITH_WORKER, ...WITHOUT_WORKER].map(([line]) => line);
  const untested: string[] = [];
  const checkCommands = (command: Awaited<ReturnType<typeof completeProgram>>, before: string) => {
    for (const subcommand of command.commands) {
      const path = `${before}${subcommand.name()}`;
      for (const { long, flags } of subcommand.options) {
        const [, value = ""] = /(<[^>]+>)$/.exec(flags) ?? [];
        if (!names.test(value) || newNames.test(`${path} ${long}`)) continue;
        if (!lines.some((line) => line.startsWith(path) && line.includes(` ${long} `)))
          untested.push(`${path} ${long}`);
      }
      const [argument] = subcommand.registeredArguments;
      const isName = argument !== undefined && names.test(argument.name());
      if (isName && !newNames.test(path) && !lines.some((line) => line.startsWith(`${path} `))) untested.push(path);
      checkCommands(subcommand, `${path} `);
    }
  };
  checkCommands(await completeProgram(), "");
  expect(untested).toEqual([]);
});

describe("commands with an unknown name", () => {
  test("reject the name and change nothing", async () => {
    const { cli } = await servedHarness();
    const allowed = { source: "main", site_id: 1, tag_id: "10001", type: "number", min: 0, max: 50 };
    cli.configure({
      // Many commands list at the service, and must not wait for the next minute.
      source: { quota: { list_requests_per_minute: 600 } },
      commands: { enabled: true, allow: [allowed] },
    });
    const worker = await cli.run("--arm-writing");
    const isListed = async (what: string) => (await cli.plenum(what)).stderr.includes("as the worker listed them");
    for (const what of ["tags", "gateways", "hosts", "systems"]) await expect.poll(() => isListed(what)).toBe(true);
    const failures: unknown[] = [];
    const runCases = async (cases: typeof CASES, stdout: RegExp) => {
      const results = await cli.each(cases.map(([typed]) => typed));
      expect(results).toHaveLength(cases.length);
      for (const [n, [typed, code, message]] of cases.entries()) {
        const each = results[n];
        const text = onlyLine((each?.stderr ?? "").replace(HELP_HINT, ""));
        if (each?.code !== code || !message.test(text) || !stdout.test(each.stdout)) failures.push({ typed, ...each });
      }
    };
    await runCases(WITH_WORKER, /^rejected \(/);
    await runCases(CASES, /^$/);
    await worker.stop();
    await runCases(WITHOUT_WORKER, /^$/);
    expect(existsSync(cli.path("out/_manifests"))).toBe(false);
    expect(failures).toEqual([]);
    expect(await cli.json("silence")).toEqual([]);
    expect((await cli.plenum("backfill")).stdout).not.toMatch(/\d{4}-\d\d-\d\d/);
  });
});
