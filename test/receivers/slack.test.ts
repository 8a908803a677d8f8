import { inspect } from "node:util";
import type { KnownBlock } from "@slack/types";
import { describe, expect, test } from "vitest";
import {
  computeIncidentKey,
  type Incident,
  type IncidentMessage,
  type IncidentReference,
} from "#connectors/shared/receiver/receiver-interface.ts";
import { buildMessage, FULL_TEXT_LENGTHS, SHORT_TEXT_LENGTHS } from "#connectors/slack/receiver.ts";
import type { ConfigError } from "#src/core/errors/errors.ts";
import { never } from "../connectors/context.ts";
import type { StubResponse } from "../connectors/stub-server.ts";
import { ALARM, SITE } from "../sample-events.ts";
import { disposeAfterTest, stopAfterTest } from "../test-resources.ts";
import { catchFailure, expectFailure, loggedContext, requireReference, secretFile } from "./receiver-helpers.ts";
import { createReceiver } from "./receivers.ts";
import { alarmMessage, endMessage } from "./sent-samples.ts";
import { findBlockError, listBlockTexts } from "./slack-rules.ts";
import { SLACK_CHANNEL, SLACK_TOKEN, type SlackStub, slackReply, startSlackStub } from "./slack-stub.ts";

const END_TIME = "2026-11-02T09:27:00.000Z";
const LINK = "https://plenum.example.com/?alarm=500001&view=all";
const LINK_ESCAPED = LINK.replace("&", "&amp;");

describe("slack: the message of an alarm", () => {
  test("posts with the token, without markup or previews, and with a request key for alarm, sink and channel", async () => {
    const { server, receiver } = await startReceiver();
    await receiver.open(linkedMessage(), never());
    await receiver.open(linkedMessage(), never());
    await receiver.open(linkedMessage({ key: computeIncidentKey("main", "alarm", "other") }), never());
    await createTestReceiver(server, {}, "second").open(linkedMessage(), never());
    const posts = server.calls.filter(({ method }) => method === "chat.postMessage");
    const ids = posts.map(({ args }) => String(args.client_msg_id));
    for (const id of ids) expect(id).toMatch(/^[0-9a-f]{8}-[0-9a-f]{4}-5[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/);
    expect(ids[1]).toBe(ids[0]);
    expect(new Set(ids).size).toBe(3);
    const [post] = server.calls;
    expect(post?.seen).toMatchObject({ method: "POST", url: "/api/chat.postMessage" });
    expect(post?.seen.headers.authorization).toBe(`Bearer ${SLACK_TOKEN}`);
    expect(post?.args).toMatchObject({ parse: "none", link_names: false, unfurl_links: false, unfurl_media: false });
  });

  test("posts a message with all fields and returns its reference", async () => {
    const { server, reference } = await openIncident();
    const [message] = server.messages;
    expect(server.messages).toHaveLength(1);
    expect(reference).toEqual({
      ref: { channel: SLACK_CHANNEL, ts: message?.ts, closed: false },
      ticket: null,
      link: `https://example.slack.com/archives/${SLACK_CHANNEL}/p${message?.ts.replace(".", "")}`,
    });
    expect(message?.versions).toEqual([
      {
        text: "🔴 Active: Supply temperature low, Kvarnholmen 4",
        blocks: [
          { type: "header", text: plainText("🔴 Active: Supply temperature low, Kvarnholmen 4") },
          {
            type: "section",
            fields: [
              [boldLabel("Site"), plainText("Kvarnholmen 4")],
              [boldLabel("Priority"), plainText("A")],
              [boldLabel("Since"), plainText("2026-11-02 07:15:00 +01:00")],
              [boldLabel("Description"), plainText("Supply temperature below 20 °C for 10 minutes")],
              [boldLabel("Value"), plainText("value: 18.4")],
            ].flat(),
          },
          { type: "context", elements: [{ type: "mrkdwn", text: `<${LINK_ESCAPED}|Open in Plenum>`, verbatim: true }] },
        ],
      },
    ]);
    const payload = { key: linkedMessage().key, sink: "chat" };
    expect(message?.metadata).toEqual({ event_type: "plenum_incident", event_payload: payload });
  });

  test("edits the message with all blocks after a change", async () => {
    const { server, receiver, reference } = await openIncident();
    const message = linkedMessage({ status: "acknowledged", change: "acknowledged" });
    expect(await receiver.update(message, reference, never())).toEqual(reference);
    expect(server.messages).toHaveLength(1);
    const emoji = server.messages[0]?.versions.map(({ text }) => text.split(":")[0]);
    expect(emoji).toEqual(["🔴 Active", "🟠 Acknowledged"]);
    const update = server.calls.at(-1);
    const metadata = { event_type: "plenum_incident" };
    expect(update?.args).toMatchObject({ parse: "none", link_names: false, metadata, blocks: { length: 3 } });
  });

  test("at the end of the alarm, edits the message and replies once, for priority A also in the channel", async () => {
    const { server, receiver, reference } = await openIncident();
    const closed = await receiver.close(linkedEnd(), reference, never());
    expect(closed).toEqual({ ...reference, ref: { ...(reference.ref as object), closed: true } });
    expect(server.messages).toHaveLength(2);
    const [message, reply] = server.messages;
    expect(message?.versions.at(-1)?.text).toBe("🟢 Resolved: Supply temperature low, Kvarnholmen 4");
    expect(JSON.stringify(message?.versions.at(-1)?.blocks)).toContain("3 h 12 min");
    expect(reply).toMatchObject({ threadTs: message?.ts, isBroadcast: true, channel: SLACK_CHANNEL });
    const text = "🟢 Resolved: Supply temperature low, Kvarnholmen 4";
    expect(reply?.versions).toEqual([{ text, blocks: [{ type: "section", text: plainText(text) }] }]);
    expect(server.incidents()).toMatchObject([{ key: linkedMessage().key, isOpen: false }]);
  });

  test.each([
    ["B", {}, false],
    ["B", { broadcast: ["B", "C"] }, true],
    ["A", { broadcast: [] }, false],
  ])(
    "a reply about the end of an alarm of priority %s with the options %j appears in the channel: %s",
    async (priority, options, isBroadcast) => {
      const { server, receiver } = await startReceiver(options);
      const reference = await receiver.open(linkedMessage({ priority }), never());
      await receiver.close(linkedEnd({ priority }), reference, never());
      expect(server.messages[1]?.isBroadcast).toBe(isBroadcast);
    },
  );

  test("replies when an alarm returns after its end, and only edits otherwise", async () => {
    const { server, receiver, reference } = await openIncident();
    const returnMessage = linkedMessage({ change: "retriggered", changeId: "again" });
    expect(await receiver.update(returnMessage, reference, never())).toEqual(reference);
    expect(server.messages).toHaveLength(1);
    const closed = requireReference(await receiver.close(linkedEnd(), reference, never()));
    expect(await receiver.update(returnMessage, closed, never())).toEqual(reference);
    expect(server.messages.map(({ versions }) => versions.at(-1)?.text.slice(0, 2))).toEqual(["🔴", "🟢", "🔴"]);
    expect(server.messages[2]).toMatchObject({ threadTs: server.messages[0]?.ts, isBroadcast: true });
  });
});

describe("slack: escaping of names", () => {
  const hostile = [
    "<!channel> <!here> <!everyone> <@U0123> <#C0123> <!subteam^S1>",
    "<https://evil.example|Open in Plenum>",
    "@channel @here @everyone *bold* _it_ ~no~ `code` :fire: > quote",
    "&lt;!channel&gt; &amp;amp;",
    "\u202eesrever\u2066 zero\u200bwidth \u0007bell",
  ];

  test.each(hostile)("shows %j as plain text", async (name) => {
    const { server, receiver } = await startReceiver();
    const trigger = { ...ALARM.trigger, displayName: name, description: name };
    const alarm = { ...ALARM, description: name, trigger, site: { ...SITE, displayName: name } };
    const reference = await receiver.open(linkedMessage({ alarm, site: alarm.site }), never());
    await receiver.close(linkedEnd({ alarm, site: alarm.site }), reference, never());
    const ownLink = `<${LINK_ESCAPED}|Open in Plenum>`;
    expect(server.obeyed()).toEqual([ownLink, ownLink]);
    for (const { versions } of server.messages) {
      for (const { text, blocks } of versions) {
        for (const each of [text, ...blocks.flatMap(listBlockTexts)]) {
          expect(each).not.toMatch(/&(?!amp;|lt;|gt;)/);
          expect(each).not.toMatch(/(?!\n)[\p{Cf}\p{Cc}\p{Zl}\p{Zp}]/u);
          expect(each.isWellFormed()).toBe(true);
        }
      }
    }
  });

  test.each([
    ["javascript:alert(1)", null],
    ["not an address", null],
    [`https://plenum.example.com/?${"x".repeat(3_000)}`, null],
    [
      "https://plenum.example.com/a|b>c<d?e=1&f=2#g|h",
      "<https://plenum.example.com/a%7Cb%3Ec%3Cd?e=1&amp;f=2#g%7Ch|Open in Plenum>",
    ],
    [null, null],
  ])("escapes or omits a link to %s", (link, expected) => {
    const last = buildMessage(linkedMessage({ link }), FULL_TEXT_LENGTHS).blocks.at(-1);
    expect(last?.type === "context" ? last.elements[0]?.text : null).toBe(expected);
  });
});

describe("slack: size limits", () => {
  const familyEmoji = "👩‍👩‍👧‍👦";
  const texts = ["x", "&", "é", "🌡️", familyEmoji, "<>&", "\n", "a\nb"].map((text) => text.repeat(12_000));

  test.each([FULL_TEXT_LENGTHS, SHORT_TEXT_LENGTHS])("builds a message within the sizes %j for every text", (sizes) => {
    for (const text of texts) {
      const long = withText({
        title: text.replaceAll("\n", " "),
        fields: Array.from({ length: 12 }, () => ({ label: text.slice(0, 1_000), text })),
        list: Array.from({ length: 21 }, () => text),
        timeSeriesLines: [],
        linkText: text,
      });
      const message = buildMessage(long, sizes);
      const knownBlocks: readonly KnownBlock[] = message.blocks;
      expect(findBlockError(knownBlocks, false)).toBeNull();
      expect(message.text.length).toBeLessThanOrEqual(sizes.text);
      for (const each of message.blocks.flatMap(listBlockTexts)) expect(each).not.toMatch(/&(?!amp;|lt;|gt;)/);
    }
  });

  test("cuts texts at the limit and ends them with …", () => {
    const [header] = buildMessage(withText({ title: "&".repeat(200) }), FULL_TEXT_LENGTHS).blocks;
    if (header?.type !== "header") throw new Error("no header");
    expect(header.text.text).toBe(`🔴 Active: ${"&amp;".repeat(27)}…`);
    const [, section] = buildMessage(
      withText({ fields: [{ label: "L", text: "y".repeat(2_001) }] }),
      FULL_TEXT_LENGTHS,
    ).blocks;
    expect(section?.type === "section" && "fields" in section && section.fields[1]?.text).toBe(`${"y".repeat(1_999)}…`);
  });

  test("sends a message again with shortened texts when Slack rejects the message as too large", async () => {
    const { server, receiver } = await startReceiver();
    const long = { fields: [{ label: "Description", text: "z".repeat(1_900) }] };
    const rejectLonger = (most: number) => (call: { readonly args: Readonly<Record<string, unknown>> }) =>
      JSON.stringify(call.args.blocks).length > most ? slackReply({ ok: false, error: "msg_blocks_too_long" }) : null;
    server.answer("chat.postMessage", rejectLonger(1_500));
    server.answer("chat.update", rejectLonger(1_500));
    const reference = await receiver.open(withText(long), never());
    expect(server.messages).toHaveLength(1);
    await receiver.update(withText(long), reference, never());
    expect(server.messages[0]?.versions).toHaveLength(2);
    for (const { blocks } of server.messages[0]?.versions ?? [])
      expect(JSON.stringify(blocks)).toContain(`${"z".repeat(149)}…`);
    server.answer("chat.postMessage", rejectLonger(10));
    await expectFailure(receiver.open(withText(long), never()), { kind: "rejected", message: /msg_blocks_too_long/ });
  });
});

describe("slack: recovery after a crash or a lost response", () => {
  test("finds the oldest of two messages, page by page, from an hour before the opening on", async () => {
    const { server, receiver } = await startReceiver();
    server.workspace.mostOfPage = 15;
    server.chatter(40);
    for (const _twice of [1, 2]) await receiver.open(linkedMessage(), never());
    server.chatter(39);
    const sinceMs = Date.now();
    const reference = await receiver.find?.(linkedMessage(), sinceMs, never());
    expect(reference).toMatchObject({ ref: { channel: SLACK_CHANNEL, ts: server.messages[40]?.ts, closed: false } });
    const searches = server.calls.filter(({ method }) => method === "conversations.history");
    expect(searches).toHaveLength(3);
    expect(searches[0]?.args).toMatchObject({ channel: SLACK_CHANNEL, include_all_metadata: "true" });
    expect(Number(searches[0]?.args.oldest)).toBeCloseTo(sinceMs / 1_000 - 3_600, 2);
  });

  test.each([{ ok: true }, { messages: [] }, { ok: true, messages: [], has_more: true }])(
    "retries a search whose response is %j",
    async (answer) => {
      const { server, receiver } = await startReceiver();
      server.answer("conversations.history", () => slackReply(answer));
      await expectFailure(receiver.find?.(linkedMessage(), 0, never()), { kind: "retryable" });
    },
  );

  test("ignores messages of other alarms and sinks, thread replies and deleted messages", async () => {
    const { server, receiver } = await startReceiver();
    expect(await receiver.find?.(linkedMessage(), Date.now(), never())).toBeNull();
    const otherReceiver = createTestReceiver(server, {}, "second");
    await otherReceiver.open(linkedMessage(), never());
    const key = computeIncidentKey("main", "alarm", "other");
    const reference = await receiver.open(linkedMessage({ key }), never());
    expect(await receiver.find?.(linkedMessage(), Date.now(), never())).toBeNull();
    await receiver.close(linkedEnd({ key }), reference, never());
    expect(server.messages.at(-1)?.isBroadcast).toBe(true);
    server.remove((reference.ref as { ts: string }).ts);
    expect(await receiver.find?.(linkedMessage({ key }), Date.now(), never())).toBeNull();
    expect(await receiver.find?.(linkedMessage(), Date.now(), never())).toBeNull();
    await receiver.open(linkedMessage(), never());
    server.remove(server.messages.at(-1)?.ts ?? "");
    expect(await receiver.find?.(linkedMessage(), Date.now(), never())).toBeNull();
  });

  test("requests smaller pages when responses are too long", async () => {
    const { server, receiver } = await startReceiver();
    server.chatter(30, "w".repeat(30_000));
    await receiver.open(linkedMessage(), never());
    expect(await receiver.find?.(linkedMessage(), 0, never())).toMatchObject({ ref: { ts: server.messages[30]?.ts } });
    const limits = server.calls.flatMap(({ method, args }) => (method === "conversations.history" ? [args.limit] : []));
    expect(limits).toEqual(["100", "20", "5", "5", "5", "5", "5", "5", "5"]);
    server.workspace.padding = 10_000_000;
    await expectFailure(receiver.find?.(linkedMessage(), 0, never()), { kind: "retryable" });
  });

  test("ends a search after 20 pages and logs that it is incomplete", async () => {
    const { server, receiver, lines } = await startReceiver();
    server.workspace.mostOfPage = 1;
    server.chatter(30);
    await receiver.open(linkedMessage(), never());
    expect(await receiver.find?.(linkedMessage(), 0, never())).toBeNull();
    expect(server.calls.filter(({ method }) => method === "conversations.history")).toHaveLength(20);
    expect(lines.join()).toContain("too many messages to be sure");
  });

  test("posts one reply about the end of an alarm although Slack's response to that reply was lost", async () => {
    const { server, receiver, reference } = await openIncident();
    const loseReply = () => {
      server.loseResponses(1);
      return null;
    };
    server.answer("conversations.replies", loseReply);
    await expectFailure(receiver.close(linkedEnd(), reference, never()), { kind: "retryable" });
    expect(server.messages).toHaveLength(2);
    server.answer("conversations.replies", null);
    const otherReceiver = createTestReceiver(server);
    const closed = requireReference(await otherReceiver.close(linkedEnd({ changeId: "later" }), reference, never()));
    expect(closed).toMatchObject({ ref: { closed: true } });
    expect(server.messages).toHaveLength(2);
    const returnMessage = linkedMessage({ change: "retriggered", changeId: "again" });
    server.answer("conversations.replies", loseReply);
    await expectFailure(receiver.update(returnMessage, closed, never()), { kind: "retryable" });
    server.answer("conversations.replies", null);
    const back = requireReference(await receiver.update(returnMessage, closed, never()));
    expect(server.messages).toHaveLength(3);
    await receiver.close(linkedEnd(), back, never());
    expect(server.messages).toHaveLength(4);
  });

  test("searches a thread page by page for an earlier reply, and replies again when the thread is too long", async () => {
    const { server, receiver, reference } = await openIncident();
    await receiver.close(linkedEnd(), reference, never());
    const closed = { ...reference, ref: { ...(reference.ref as object), closed: true } };
    await receiver.update(linkedMessage({ change: "retriggered" }), closed, never());
    await receiver.close(linkedEnd(), reference, never());
    expect(server.messages).toHaveLength(4);
    server.workspace.mostOfPage = 1;
    await receiver.close(linkedEnd(), reference, never());
    expect(server.messages).toHaveLength(4);
    server.chatter(30, "Who looks after it?", server.messages[0]?.ts);
    await receiver.close(linkedEnd(), reference, never());
    expect(server.messages).toHaveLength(35);
  });

  test("posts without the request key when the message with that key was deleted", async () => {
    const { server, receiver } = await startReceiver();
    server.answer("chat.postMessage", ({ args }) =>
      args.client_msg_id === undefined ? null : slackReply({ ok: false, error: "duplicate_message_not_found" }),
    );
    const reference = await receiver.open(linkedMessage(), never());
    expect(server.messages.map(({ ts }) => ts)).toEqual([(reference.ref as { ts: string }).ts]);
  });
});

describe("slack: changes by people in Slack", () => {
  test("reports a message as gone that a person deletes between edit and reply", async () => {
    const { server, receiver, reference } = await openIncident();
    server.answer("conversations.replies", () => {
      server.remove(server.messages[0]?.ts ?? "");
      return null;
    });
    expect(await receiver.close(linkedEnd(), reference, never())).toBe("gone");
    server.answer("conversations.replies", () => slackReply({ ok: true, messages: [] }));
    server.answer("chat.update", () => slackReply({ ok: true }));
    expect(await receiver.close(linkedEnd(), reference, never())).toBe("gone");
  });

  test("treats a message that Slack does not find as deleted", async () => {
    const { server, receiver } = await startReceiver();
    for (const ref of [null, "C1", { channel: SLACK_CHANNEL }, { id: 7 }])
      expect(await receiver.update(linkedMessage(), { ref, ticket: null, link: null }, never())).toBe("gone");
    expect(server.requests()).toBe(0);
  });

  test("replies once with the complete message when Slack no longer allows an edit", async () => {
    const { server, receiver, reference } = await openIncident();
    server.answer("chat.update", () => slackReply({ ok: false, error: "edit_window_closed" }));
    const acknowledged = linkedMessage({ status: "acknowledged", change: "acknowledged", changeId: "ack" });
    expect(await receiver.update(acknowledged, reference, never())).toEqual(reference);
    expect(server.messages[1]).toMatchObject({ threadTs: server.messages[0]?.ts, isBroadcast: false });
    expect(server.messages[1]?.versions[0]?.blocks[0]).toMatchObject({ type: "header" });
    await receiver.update(acknowledged, reference, never());
    expect(server.messages).toHaveLength(2);
    expect(await receiver.close(linkedEnd(), reference, never())).toMatchObject({ ref: { closed: true } });
    expect(server.messages[2]).toMatchObject({ isBroadcast: true });
    expect(JSON.stringify(server.messages[2]?.versions)).toContain("3 h 12 min");
  });

  test("reports an incident in a former channel as gone, and an archived channel as a configuration error", async () => {
    const { server, receiver, reference } = await openIncident();
    const formerReference: IncidentReference = { ...reference, ref: { channel: "C0OLDCHANNEL", ts: "1.000001" } };
    expect(await receiver.update(linkedMessage(), formerReference, never())).toBe("gone");
    expect(await receiver.close(linkedEnd(), formerReference, never())).toBe("gone");
    server.workspace.isArchived = true;
    await expectFailure(receiver.update(linkedMessage(), reference, never()), { kind: "config", field: "channel" });
  });
});

describe("slack: error responses", () => {
  test.each([
    [{ error: "brand_new" }, /brand_new\.$/],
    [{}, /no reason given\.$/],
    [{ error: "constructor" }, /constructor\.$/],
    [{ error: "bad\u001b[31m\u202e" }, /bad\ufffd\[31m\.$/],
    [{ error: "x", response_metadata: { messages: ["[ERROR] at /blocks/0"] } }, /said: \[ERROR\] at \/blocks\/0$/],
  ])("rejects the message after the unknown error %j", async (answer, expectedText) => {
    const { server, receiver } = await startReceiver();
    server.answer("chat.postMessage", () => slackReply({ ok: false, ...answer }));
    await expectFailure(receiver.open(linkedMessage(), never()), { kind: "rejected", message: expectedText });
    expect(server.messages).toEqual([]);
  });

  test.each([{ status: 200 }, slackReply({ ok: true }), slackReply({ ok: false, error: "fatal_error" })])(
    "retries the message after the response %j, which does not say what was done",
    async (answer) => {
      const { server, receiver } = await startReceiver();
      server.answer("chat.postMessage", () => answer);
      await expectFailure(receiver.open(linkedMessage(), never()), { kind: "retryable" });
    },
  );

  test.each<[string, Partial<ConfigError>, RegExp]>([
    ["invalid_auth", { reason: "unauthenticated", field: "token" }, /xoxb-/],
    ["token_expired", { reason: "unauthenticated" }, /rotation/],
    ["no_permission", { reason: "forbidden" }, /Invite the bot/],
    ["not_in_channel", { reason: "settings", field: "channel" }, /\/invite/],
    ["is_archived", { field: "channel" }, /Unarchive/],
  ])("reports the Slack error %s as a configuration error with a hint", async (error, fields, hint) => {
    const { server, receiver } = await startReceiver();
    server.answer("chat.postMessage", () => slackReply({ ok: false, error }));
    const message = `${server.url} refused chat.postMessage: ${error}.`;
    await expectFailure(receiver.open(linkedMessage(), never()), { kind: "config", ...fields, message, hint });
  });

  test.each([
    ["ratelimited", "allowance"],
    ["service_unavailable", "everything"],
  ])("reports the Slack error %s as a throttling of scope %s", async (error, scope) => {
    const { server, receiver } = await startReceiver();
    server.answer("chat.postMessage", () => slackReply({ ok: false, error }, 200, { "retry-after": "7" }));
    await expectFailure(receiver.open(linkedMessage(), never()), { kind: "throttled", retryAfterMs: 7_000, scope });
    server.answer("chat.postMessage", () => slackReply({ ok: false, error }));
    await expectFailure(receiver.open(linkedMessage(), never()), { retryAfterMs: null });
  });
});

test.each<[string, StubResponse | null | "stop"]>([
  ["an error response", slackReply({ ok: false, error: "message_not_found" })],
  ["a broken connection", null],
  ["another kind of address", slackReply({ ok: true, permalink: "javascript:alert(1)" })],
  ["a stop during the request", "stop"],
])(
  "slack: the link to the message is omitted after %s, and the reference to the message is kept",
  async (_, answer) => {
    const { server, receiver } = await startReceiver();
    const stopController = new AbortController();
    server.answer("chat.getPermalink", (_call, response) => {
      if (answer === "stop") stopController.abort(new Error("stopping"));
      if (answer === null) response.destroy();
      return answer === "stop" ? null : answer;
    });
    const reference = await receiver.open(linkedMessage(), stopController.signal);
    expect(reference).toMatchObject({ ref: { ts: server.messages[0]?.ts }, link: null });
  },
);

describe("slack: the token", () => {
  test("is in no error or log line when Slack repeats it in a response with status 200", async () => {
    const { server, receiver, reference, lines } = await openIncident();
    const echo = `Bearer ${SLACK_TOKEN}`;
    for (const answer of [
      { ok: false, error: SLACK_TOKEN, response_metadata: { messages: [echo] } },
      { ok: false, error: "missing_scope", needed: echo },
    ]) {
      for (const method of ["chat.postMessage", "chat.update", "chat.getPermalink", "conversations.history"])
        server.answer(method, () => slackReply(answer));
      const calls = [
        receiver.open(linkedMessage(), never()),
        receiver.update(linkedMessage(), reference, never()),
        receiver.close(linkedEnd(), reference, never()),
        receiver.find?.(linkedMessage(), 0, never()),
      ];
      const failures = await Promise.all(calls.map(catchFailure));
      expect(inspect(failures, { depth: 9, showHidden: true })).not.toContain(SLACK_TOKEN.slice(5, 25));
    }
    expect(lines.join()).not.toContain(SLACK_TOKEN.slice(5, 25));
  });

  test.each([
    ["https://hooks.slack.com/services/T000/B000/canarycanarycanary", /is an address/],
    ["xapp-1-A000-canarycanarycanary", /app-level token/],
    ["xoxb-canary canary\ncanarycanary", /characters that no token has/],
  ])("is rejected before any request when it has the wrong form", async (text, expectedText) => {
    const { server } = await startReceiver();
    const receiver = createTestReceiver(server, { token: secretFile(text) });
    const failure = await catchFailure(receiver.probe(never()));
    expect(failure).toMatchObject({ kind: "config", field: "token", message: expect.stringMatching(expectedText) });
    expect(inspect(failure, { depth: 9 })).not.toContain("canarycanary");
    expect(server.requests()).toBe(0);
  });
});

describe("slack: plenum check", () => {
  test.each([
    [{ isArchived: true }, /is_archived/],
    [{ isMember: false }, /not_in_channel/],
    [{ isPrivate: true }, /needed: groups:history\.$/],
    [{ scopes: [] }, /missing_scope \(it needs channels:read\)/],
  ])("reports a configuration error for a workspace with %j", async (change, expectedText) => {
    const { server, receiver } = await startReceiver();
    Object.assign(server.workspace, change);
    await expectFailure(receiver.probe(never()), { kind: "config", message: expectedText, hint: /./ });
  });

  test("uses a configured base address with a path and posts nothing", async () => {
    const { server } = await startReceiver();
    const receiver = createTestReceiver(server, { base_url: `${server.url}/slack/` });
    await receiver.probe(never());
    expect(server.calls.map(({ seen }) => seen.url)).toEqual([
      "/slack/api/auth.test",
      `/slack/api/conversations.info?channel=${SLACK_CHANNEL}`,
    ]);
  });
});

async function startReceiver(options: object = {}) {
  const server = stopAfterTest(await startSlackStub());
  const lines: string[] = [];
  return { server, lines, receiver: createTestReceiver(server, options, "chat", lines) };
}

async function openIncident(options: object = {}) {
  const all = await startReceiver(options);
  return { ...all, reference: await all.receiver.open(linkedMessage(), never()) };
}

function createTestReceiver(server: SlackStub, options: object = {}, name = "chat", lines: string[] = []) {
  return disposeAfterTest(createReceiver("slack", server, loggedContext(name, lines), options));
}

const linkedMessage = (changes: Partial<Incident> = {}): IncidentMessage => alarmMessage({ link: LINK, ...changes });

function linkedEnd(changes: Partial<Incident> = {}): IncidentMessage {
  return endMessage({ link: LINK, endedAt: END_TIME, ...changes });
}

function withText(text: Partial<IncidentMessage["text"]>): IncidentMessage {
  const plainText = linkedMessage();
  return { ...plainText, text: { ...plainText.text, ...text } };
}

const plainText = (text: string) => ({ type: "plain_text", text, emoji: false });

const boldLabel = (text: string) => ({ type: "mrkdwn", text: `*${text}*`, verbatim: true });
