import { inspect } from "node:util";
import type { KnownBlock } from "@slack/types";
import { describe, expect, onTestFinished, test } from "vitest";
import {
  computeIncidentKey,
  type Incident,
  type IncidentMessage,
  type IncidentReference,
  type Receiver,
} from "#connectors/shared/receiver/receiver.ts";
import { buildMessage, FULL_SIZES, SMALL_SIZES } from "#connectors/slack/receiver.ts";
import type { ConfigError } from "#src/core/errors/errors.ts";
import { never } from "../connectors/context.ts";
import type { StubAnswer } from "../connectors/stub-server.ts";
import { ALARM, SITE } from "../sample-events.ts";
import { expectFailure, failureOf, loggedContext, secretFile } from "./receiver-helpers.ts";
import { receiverOf } from "./receivers.ts";
import { resolvedOf, toldOf } from "./sent-samples.ts";
import { complaintAboutBlocks, textsIn } from "./slack-rules.ts";
import { CHANNEL, json, type SlackEnd, startSlackEnd, TOKEN } from "./slack-stub.ts";

const ENDED = "2026-11-02T09:27:00.000Z";
const LINK = "https://plenum.example.com/?alarm=500001&view=all";
const LINK_ESCAPED = LINK.replace("&", "&amp;");

describe("slack: the message of an alarm", () => {
  test("posts with the token, without markup or previews, and with a request key for alarm, sink and channel", async () => {
    const { end, receiver } = await started();
    await receiver.open(told(), never());
    await receiver.open(told(), never());
    await receiver.open(told({ key: computeIncidentKey("main", "alarm", "other") }), never());
    await receiverFor(end, {}, "second").open(told(), never());
    const ids = posts(end).map(({ args }) => String(args.client_msg_id));
    for (const id of ids) expect(id).toMatch(/^[0-9a-f]{8}-[0-9a-f]{4}-5[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/);
    expect(ids[1]).toBe(ids[0]);
    expect(new Set(ids).size).toBe(3);
    const [post] = end.calls;
    expect(post?.seen).toMatchObject({ method: "POST", url: "/api/chat.postMessage" });
    expect(post?.seen.headers.authorization).toBe(`Bearer ${TOKEN}`);
    expect(post?.args).toMatchObject({ parse: "none", link_names: false, unfurl_links: false, unfurl_media: false });
  });

  test("posts a message with all fields and returns its reference", async () => {
    const { end, place } = await opened();
    const [message] = end.messages;
    expect(end.messages).toHaveLength(1);
    expect(place).toEqual({
      ref: { channel: CHANNEL, ts: message?.ts, closed: false },
      ticket: null,
      link: `https://example.slack.com/archives/${CHANNEL}/p${message?.ts.replace(".", "")}`,
    });
    expect(message?.versions).toEqual([
      {
        text: "🔴 Active: Supply temperature low, Kvarnholmen 4",
        blocks: [
          { type: "header", text: plain("🔴 Active: Supply temperature low, Kvarnholmen 4") },
          {
            type: "section",
            fields: [
              [label("Site"), plain("Kvarnholmen 4")],
              [label("Priority"), plain("A")],
              [label("Since"), plain("2026-11-02 07:15:00 +01:00")],
              [label("Description"), plain("Supply temperature below 20 °C for 10 minutes")],
              [label("Value"), plain("value: 18.4")],
            ].flat(),
          },
          {
            type: "context",
            elements: [{ type: "mrkdwn", text: `<${LINK_ESCAPED}|Open in Plenum>`, verbatim: true }],
          },
        ],
      },
    ]);
    const payload = { key: told().key, sink: "chat" };
    expect(message?.metadata).toEqual({ event_type: "plenum_incident", event_payload: payload });
  });

  test("edits the message with all blocks after a change", async () => {
    const { end, receiver, place } = await opened();
    const next = await receiver.update(told({ status: "acknowledged", change: "acknowledged" }), place, never());
    expect(next).toEqual(place);
    expect(end.messages).toHaveLength(1);
    const emoji = end.messages[0]?.versions.map(({ text }) => text.split(":")[0]);
    expect(emoji).toEqual(["🔴 Active", "🟠 Acknowledged"]);
    const update = end.calls.at(-1);
    const metadata = { event_type: "plenum_incident" };
    expect(update?.args).toMatchObject({ parse: "none", link_names: false, metadata, blocks: { length: 3 } });
  });

  test("edits the message at the end and replies once, for priority A also in the channel", async () => {
    const { end, receiver, place } = await opened();
    const closed = await receiver.close(over(), place, never());
    expect(closed).toEqual({ ...place, ref: { ...(place.ref as object), closed: true } });
    expect(end.messages).toHaveLength(2);
    const [message, reply] = end.messages;
    expect(message?.versions.at(-1)?.text).toBe("🟢 Resolved: Supply temperature low, Kvarnholmen 4");
    expect(JSON.stringify(message?.versions.at(-1)?.blocks)).toContain("3 h 12 min");
    expect(reply).toMatchObject({ threadTs: message?.ts, isBroadcast: true, channel: CHANNEL });
    const text = "🟢 Resolved: Supply temperature low, Kvarnholmen 4";
    expect(reply?.versions).toEqual([{ text, blocks: [{ type: "section", text: plain(text) }] }]);
    expect(end.things()).toMatchObject([{ key: told().key, isOpen: false }]);
  });

  test.each([
    ["B", {}, false],
    ["B", { broadcast: ["B", "C"] }, true],
    ["A", { broadcast: [] }, false],
  ])(
    "a reply to an end of priority %s with the options %j appears in the channel: %s",
    async (priority, options, isBroadcast) => {
      const { end, receiver } = await started(options);
      const place = await receiver.open(told({ priority }), never());
      await receiver.close(over({ priority }), place, never());
      expect(end.messages[1]?.isBroadcast).toBe(isBroadcast);
    },
  );

  test("replies when an alarm returns after its end, and only edits otherwise", async () => {
    const { end, receiver, place } = await opened();
    const again = told({ change: "retriggered", changeId: "again" });
    expect(await receiver.update(again, place, never())).toEqual(place);
    expect(end.messages).toHaveLength(1);
    const closed = sure(await receiver.close(over(), place, never()));
    expect(await receiver.update(again, closed, never())).toEqual(place);
    expect(end.messages.map(({ versions }) => versions.at(-1)?.text.slice(0, 2))).toEqual(["🔴", "🟢", "🔴"]);
    expect(end.messages[2]).toMatchObject({ threadTs: end.messages[0]?.ts, isBroadcast: true });
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
    const { end, receiver } = await started();
    const trigger = { ...ALARM.trigger, displayName: name, description: name };
    const alarm = { ...ALARM, description: name, trigger, site: { ...SITE, displayName: name } };
    const place = await receiver.open(told({ alarm, site: alarm.site }), never());
    await receiver.close(over({ alarm, site: alarm.site }), place, never());
    const ours = `<${LINK_ESCAPED}|Open in Plenum>`;
    expect(end.obeyed()).toEqual([ours, ours]);
    for (const { versions } of end.messages) {
      for (const { text, blocks } of versions) {
        for (const each of [text, ...blocks.flatMap(textsIn)]) {
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
    const last = buildMessage(told({ link }), FULL_SIZES).blocks.at(-1);
    expect(last?.type === "context" ? last.elements[0]?.text : null).toBe(expected);
  });
});

describe("slack: size limits", () => {
  const family = "👩‍👩‍👧‍👦";
  const texts = ["x", "&", "é", "🌡️", family, "<>&", "\n", "a\nb"].map((text) => text.repeat(12_000));

  test.each([FULL_SIZES, SMALL_SIZES])("keeps the sizes %j for every text", (sizes) => {
    for (const text of texts) {
      const long = withText({
        title: text.replaceAll("\n", " "),
        fields: Array.from({ length: 12 }, () => ({ label: text.slice(0, 1_000), text })),
        list: Array.from({ length: 21 }, () => text),
        curves: [],
        linkText: text,
      });
      const message = buildMessage(long, sizes);
      const known: readonly KnownBlock[] = message.blocks;
      expect(complaintAboutBlocks(known, false)).toBeNull();
      expect(message.text.length).toBeLessThanOrEqual(sizes.text);
      for (const each of message.blocks.flatMap(textsIn)) expect(each).not.toMatch(/&(?!amp;|lt;|gt;)/);
    }
  });

  test("cuts texts at the limit and ends them with …", () => {
    const [header] = buildMessage(withText({ title: "&".repeat(200) }), FULL_SIZES).blocks;
    if (header?.type !== "header") throw new Error("no header");
    expect(header.text.text).toBe(`🔴 Active: ${"&amp;".repeat(27)}…`);
    const [, section] = buildMessage(
      withText({ fields: [{ label: "L", text: "y".repeat(2_001) }] }),
      FULL_SIZES,
    ).blocks;
    expect(section?.type === "section" && "fields" in section && section.fields[1]?.text).toBe(`${"y".repeat(1_999)}…`);
  });

  test("sends a message again with cut texts when Slack rejects it as too large", async () => {
    const { end, receiver } = await started();
    const long = { fields: [{ label: "Description", text: "z".repeat(1_900) }] };
    const strict = (most: number) => (call: { readonly args: Readonly<Record<string, unknown>> }) =>
      JSON.stringify(call.args.blocks).length > most ? json({ ok: false, error: "msg_blocks_too_long" }) : null;
    end.answer("chat.postMessage", strict(1_500));
    end.answer("chat.update", strict(1_500));
    const place = await receiver.open(withText(long), never());
    expect(end.messages).toHaveLength(1);
    await receiver.update(withText(long), place, never());
    expect(end.messages[0]?.versions).toHaveLength(2);
    for (const { blocks } of end.messages[0]?.versions ?? [])
      expect(JSON.stringify(blocks)).toContain(`${"z".repeat(149)}…`);
    end.answer("chat.postMessage", strict(10));
    await expectFailure(receiver.open(withText(long), never()), { kind: "rejected", message: /msg_blocks_too_long/ });
  });
});

describe("slack: recovery after a crash or a lost response", () => {
  test("finds the oldest of two messages, page by page, from an hour before the opening on", async () => {
    const { end, receiver } = await started();
    end.workspace.mostOfPage = 15;
    end.chatter(40);
    for (const _twice of [1, 2]) await receiver.open(told(), never());
    end.chatter(39);
    const sinceMs = Date.now();
    const place = await receiver.find?.(told(), sinceMs, never());
    expect(place).toMatchObject({ ref: { channel: CHANNEL, ts: end.messages[40]?.ts, closed: false } });
    const searches = end.calls.filter(({ method }) => method === "conversations.history");
    expect(searches).toHaveLength(3);
    expect(searches[0]?.args).toMatchObject({ channel: CHANNEL, include_all_metadata: "true" });
    expect(Number(searches[0]?.args.oldest)).toBeCloseTo(sinceMs / 1_000 - 3_600, 2);
  });

  test.each([{ ok: true }, { messages: [] }, { ok: true, messages: [], has_more: true }])(
    "retries a search whose response is %j",
    async (answer) => {
      const { end, receiver } = await started();
      end.answer("conversations.history", () => json(answer));
      await expectFailure(receiver.find?.(told(), 0, never()), { kind: "retryable" });
    },
  );

  test("finds no message of another alarm or sink, no reply, and no deleted message", async () => {
    const { end, receiver } = await started();
    expect(await receiver.find?.(told(), Date.now(), never())).toBeNull();
    const other = receiverFor(end, {}, "second");
    await other.open(told(), never());
    const key = computeIncidentKey("main", "alarm", "other");
    const place = await receiver.open(told({ key }), never());
    expect(await receiver.find?.(told(), Date.now(), never())).toBeNull();
    await receiver.close(over({ key }), place, never());
    expect(end.messages.at(-1)?.isBroadcast).toBe(true);
    end.remove((place.ref as { ts: string }).ts);
    expect(await receiver.find?.(told({ key }), Date.now(), never())).toBeNull();
    expect(await receiver.find?.(told(), Date.now(), never())).toBeNull();
    await receiver.open(told(), never());
    end.remove(end.messages.at(-1)?.ts ?? "");
    expect(await receiver.find?.(told(), Date.now(), never())).toBeNull();
  });

  test("requests smaller pages when responses are too long", async () => {
    const { end, receiver } = await started();
    end.chatter(30, "w".repeat(30_000));
    await receiver.open(told(), never());
    expect(await receiver.find?.(told(), 0, never())).toMatchObject({ ref: { ts: end.messages[30]?.ts } });
    const limits = end.calls.flatMap(({ method, args }) => (method === "conversations.history" ? [args.limit] : []));
    expect(limits).toEqual(["100", "20", "5", "5", "5", "5", "5", "5", "5"]);
    end.workspace.padding = 10_000_000;
    await expectFailure(receiver.find?.(told(), 0, never()), { kind: "retryable" });
  });

  test("ends a search after 20 pages and logs that it is incomplete", async () => {
    const { end, receiver, lines } = await started();
    end.workspace.mostOfPage = 1;
    end.chatter(30);
    await receiver.open(told(), never());
    expect(await receiver.find?.(told(), 0, never())).toBeNull();
    expect(end.calls.filter(({ method }) => method === "conversations.history")).toHaveLength(20);
    expect(lines.join()).toContain("too many messages to be sure");
  });

  test("replies once to an end when the response to the reply was lost", async () => {
    const { end, receiver, place } = await opened();
    const loseReply = () => {
      end.loseResponses(1);
      return null;
    };
    end.answer("conversations.replies", loseReply);
    await expectFailure(receiver.close(over(), place, never()), { kind: "retryable" });
    expect(end.messages).toHaveLength(2);
    end.answer("conversations.replies", null);
    const closed = sure(await receiverFor(end).close(over({ changeId: "later" }), place, never()));
    expect(closed).toMatchObject({ ref: { closed: true } });
    expect(end.messages).toHaveLength(2);
    const again = told({ change: "retriggered", changeId: "again" });
    end.answer("conversations.replies", loseReply);
    await expectFailure(receiver.update(again, closed, never()), { kind: "retryable" });
    end.answer("conversations.replies", null);
    const back = sure(await receiver.update(again, closed, never()));
    expect(end.messages).toHaveLength(3);
    await receiver.close(over(), back, never());
    expect(end.messages).toHaveLength(4);
  });

  test("searches a thread page by page and replies again when the thread is too long", async () => {
    const { end, receiver, place } = await opened();
    await receiver.close(over(), place, never());
    const closed = { ...place, ref: { ...(place.ref as object), closed: true } };
    await receiver.update(told({ change: "retriggered" }), closed, never());
    await receiver.close(over(), place, never());
    expect(end.messages).toHaveLength(4);
    end.workspace.mostOfPage = 1;
    await receiver.close(over(), place, never());
    expect(end.messages).toHaveLength(4);
    end.chatter(30, "Who looks after it?", end.messages[0]?.ts);
    await receiver.close(over(), place, never());
    expect(end.messages).toHaveLength(35);
  });

  test("posts without the request key when the message with that key was deleted", async () => {
    const { end, receiver } = await started();
    end.answer("chat.postMessage", ({ args }) =>
      args.client_msg_id === undefined ? null : json({ ok: false, error: "duplicate_message_not_found" }),
    );
    const place = await receiver.open(told(), never());
    expect(end.messages.map(({ ts }) => ts)).toEqual([(place.ref as { ts: string }).ts]);
  });
});

describe("slack: changes by people in Slack", () => {
  test("reports a message as gone that a person deletes between edit and reply", async () => {
    const { end, receiver, place } = await opened();
    end.answer("conversations.replies", () => {
      end.remove(end.messages[0]?.ts ?? "");
      return null;
    });
    expect(await receiver.close(over(), place, never())).toBe("gone");
    end.answer("conversations.replies", () => json({ ok: true, messages: [] }));
    end.answer("chat.update", () => json({ ok: true }));
    expect(await receiver.close(over(), place, never())).toBe("gone");
  });

  test("reports an unknown reference as gone", async () => {
    const { end, receiver } = await started();
    for (const ref of [null, "C1", { channel: CHANNEL }, { id: 7 }])
      expect(await receiver.update(told(), { ref, ticket: null, link: null }, never())).toBe("gone");
    expect(end.requests()).toBe(0);
  });

  test("replies once with the complete message when Slack no longer allows an edit", async () => {
    const { end, receiver, place } = await opened();
    end.answer("chat.update", () => json({ ok: false, error: "edit_window_closed" }));
    const acknowledged = told({ status: "acknowledged", change: "acknowledged", changeId: "ack" });
    expect(await receiver.update(acknowledged, place, never())).toEqual(place);
    expect(end.messages[1]).toMatchObject({ threadTs: end.messages[0]?.ts, isBroadcast: false });
    expect(end.messages[1]?.versions[0]?.blocks[0]).toMatchObject({ type: "header" });
    await receiver.update(acknowledged, place, never());
    expect(end.messages).toHaveLength(2);
    expect(await receiver.close(over(), place, never())).toMatchObject({ ref: { closed: true } });
    expect(end.messages[2]).toMatchObject({ isBroadcast: true });
    expect(JSON.stringify(end.messages[2]?.versions)).toContain("3 h 12 min");
  });

  test("reports an incident in a former channel as gone, and an archived channel as a configuration error", async () => {
    const { end, receiver, place } = await opened();
    const elsewhere: IncidentReference = { ...place, ref: { channel: "C0OLDCHANNEL", ts: "1.000001" } };
    expect(await receiver.update(told(), elsewhere, never())).toBe("gone");
    expect(await receiver.close(over(), elsewhere, never())).toBe("gone");
    end.workspace.isArchived = true;
    await expectFailure(receiver.update(told(), place, never()), { kind: "config", field: "channel" });
  });
});

describe("slack: error responses", () => {
  test.each([
    [{ error: "brand_new" }, /brand_new\.$/],
    [{}, /no reason given\.$/],
    [{ error: "constructor" }, /constructor\.$/],
    [{ error: "bad\u001b[31m\u202e" }, /bad\ufffd\[31m\.$/],
    [{ error: "x", response_metadata: { messages: ["[ERROR] at /blocks/0"] } }, /said: \[ERROR\] at \/blocks\/0$/],
  ])("rejects the message after the unknown error %j", async (answer, words) => {
    const { end, receiver } = await started();
    end.answer("chat.postMessage", () => json({ ok: false, ...answer }));
    await expectFailure(receiver.open(told(), never()), { kind: "rejected", message: words });
    expect(end.messages).toEqual([]);
  });

  test.each([{ status: 200 }, json({ ok: true }), json({ ok: false, error: "fatal_error" })])(
    "retries the message after the response %j, which does not say what was done",
    async (answer) => {
      const { end, receiver } = await started();
      end.answer("chat.postMessage", () => answer);
      await expectFailure(receiver.open(told(), never()), { kind: "retryable" });
    },
  );

  test.each<[string, Partial<ConfigError>, RegExp]>([
    ["invalid_auth", { reason: "unauthenticated", field: "token" }, /xoxb-/],
    ["token_expired", { reason: "unauthenticated" }, /rotation/],
    ["no_permission", { reason: "forbidden" }, /Invite the bot/],
    ["not_in_channel", { reason: "settings", field: "channel" }, /\/invite/],
    ["is_archived", { field: "channel" }, /Unarchive/],
  ])("reports %s as a configuration error with a hint", async (error, fields, hint) => {
    const { end, receiver } = await started();
    end.answer("chat.postMessage", () => json({ ok: false, error }));
    const failure = await failureOf(receiver.open(told(), never()));
    expect(failure).toMatchObject({ kind: "config", ...fields });
    expect(failure.message).toBe(`${end.url} refused chat.postMessage: ${error}.`);
    expect(failure.hint).toMatch(hint);
  });

  test.each([
    ["ratelimited", "allowance"],
    ["service_unavailable", "everything"],
  ])("waits after %s with the scope %s", async (error, scope) => {
    const { end, receiver } = await started();
    end.answer("chat.postMessage", () => json({ ok: false, error }, 200, { "retry-after": "7" }));
    const failure = await failureOf(receiver.open(told(), never()));
    expect(failure).toMatchObject({ kind: "throttled", retryAfterMs: 7_000, scope });
    end.answer("chat.postMessage", () => json({ ok: false, error }));
    expect(await failureOf(receiver.open(told(), never()))).toMatchObject({ retryAfterMs: null });
  });
});

describe("slack: the link to the message", () => {
  test.each<[string, StubAnswer | null | "stop"]>([
    ["an error response", json({ ok: false, error: "message_not_found" })],
    ["a broken connection", null],
    ["another kind of address", json({ ok: true, permalink: "javascript:alert(1)" })],
    ["a stop during the request", "stop"],
  ])("is omitted after %s, and the reference to the message is kept", async (_, answer) => {
    const { end, receiver } = await started();
    const stopping = new AbortController();
    end.answer("chat.getPermalink", (_call, response) => {
      if (answer === "stop") stopping.abort(new Error("stopping"));
      if (answer === null) response.destroy();
      return answer === "stop" ? null : answer;
    });
    const place = await receiver.open(told(), stopping.signal);
    expect(place).toMatchObject({ ref: { ts: end.messages[0]?.ts }, link: null });
  });
});

describe("slack: the token", () => {
  test("is in no error or log line when Slack repeats it in a response with status 200", async () => {
    const { end, receiver, place, lines } = await opened();
    const echo = `Bearer ${TOKEN}`;
    for (const answer of [
      { ok: false, error: TOKEN, response_metadata: { messages: [echo] } },
      { ok: false, error: "missing_scope", needed: echo },
    ]) {
      for (const method of ["chat.postMessage", "chat.update", "chat.getPermalink", "conversations.history"])
        end.answer(method, () => json(answer));
      const calls = [
        receiver.open(told(), never()),
        receiver.update(told(), place, never()),
        receiver.close(over(), place, never()),
        receiver.find?.(told(), 0, never()),
      ];
      const failures = await Promise.all(calls.map(failureOf));
      expect(inspect(failures, { depth: 9, showHidden: true })).not.toContain(TOKEN.slice(5, 25));
    }
    expect(lines.join()).not.toContain(TOKEN.slice(5, 25));
  });

  test.each([
    ["https://hooks.slack.com/services/T000/B000/canarycanarycanary", /is an address/],
    ["xapp-1-A000-canarycanarycanary", /app-level token/],
    ["xoxb-canary canary\ncanarycanary", /characters that no token has/],
  ])("is rejected before any request when it has the wrong form", async (text, words) => {
    const { end } = await started();
    const receiver = receiverFor(end, { token: secretFile(text) });
    const failure = await failureOf(receiver.probe(never()));
    expect(failure).toMatchObject({ kind: "config", field: "token", message: expect.stringMatching(words) });
    expect(inspect(failure, { depth: 9 })).not.toContain("canarycanary");
    expect(end.requests()).toBe(0);
  });
});

describe("slack: plenum check", () => {
  test.each([
    [{ isArchived: true }, /is_archived/],
    [{ isMember: false }, /not_in_channel/],
    [{ isPrivate: true }, /needed: groups:history\.$/],
    [{ scopes: [] }, /missing_scope \(it needs channels:read\)/],
  ])("reports a configuration error for a workspace with %j", async (change, words) => {
    const { end, receiver } = await started();
    Object.assign(end.workspace, change);
    await expectFailure(receiver.probe(never()), { kind: "config", message: words, hint: /./ });
  });

  test("passes without the response header that lists the scopes, but not without a channel", async () => {
    const { end, receiver } = await started();
    end.answer("auth.test", () => json({ ok: true }));
    end.answer("conversations.info", () => json({ ok: true, channel: { id: CHANNEL } }));
    await receiver.probe(never());
    end.answer("conversations.info", () => json({ ok: true }));
    await expectFailure(receiver.probe(never()), { kind: "retryable" });
  });

  test("uses a base address with a path and posts nothing", async () => {
    const { end } = await started();
    const receiver = receiverFor(end, { base_url: `${end.url}/slack/` });
    await receiver.probe(never());
    expect(end.calls.map(({ seen }) => seen.url)).toEqual([
      "/slack/api/auth.test",
      `/slack/api/conversations.info?channel=${CHANNEL}`,
    ]);
  });
});

async function started(options: object = {}) {
  const end = await startSlackEnd();
  onTestFinished(() => end.stop());
  const lines: string[] = [];
  return { end, lines, receiver: receiverFor(end, options, "chat", lines) };
}

async function opened(options: object = {}) {
  const all = await started(options);
  return { ...all, place: await all.receiver.open(told(), never()) };
}

function receiverFor(end: SlackEnd, options: object = {}, name = "chat", lines: string[] = []): Receiver {
  const receiver = receiverOf("slack", end, loggedContext(name, lines), options);
  onTestFinished(() => receiver.dispose());
  return receiver;
}

const posts = (end: SlackEnd) => end.calls.filter(({ method }) => method === "chat.postMessage");

const sure = (place: IncidentReference | "gone") => {
  if (place === "gone") throw new Error("The message is gone.");
  return place;
};

const told = (changes: Partial<Incident> = {}): IncidentMessage => toldOf({ link: LINK, ...changes });

function over(changes: Partial<Incident> = {}): IncidentMessage {
  return resolvedOf({ link: LINK, endedAt: ENDED, ...changes });
}

function withText(text: Partial<IncidentMessage["text"]>): IncidentMessage {
  const plain = told();
  return { ...plain, text: { ...plain.text, ...text } };
}

const plain = (text: string) => ({ type: "plain_text", text, emoji: false });

const label = (text: string) => ({ type: "mrkdwn", text: `*${text}*`, verbatim: true });
