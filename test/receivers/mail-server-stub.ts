import type { AddressInfo, Socket } from "node:net";
import PostalMime, { type Email } from "postal-mime";
import { SMTPServer, type SMTPServerOptions, type SMTPServerSession } from "smtp-server";
import type { DrawFailure, ReceiverIncident, ReceiverServer } from "./receiver-server.ts";

export interface ReceivedMail {
  readonly mail: Email;
  readonly raw: string;
  readonly recipients: readonly string[];
  readonly isSecure: boolean;
  readonly user: string | null;
}

export interface MailServerStub extends ReceiverServer {
  readonly port: number;
  readonly mails: readonly ReceivedMail[];
  readonly sessions: number;
  refuse: (step: "connect" | "auth" | "from" | "to" | "data", about: string) => string | undefined;
}

export async function startMailServerStub(options: SMTPServerOptions = {}): Promise<MailServerStub> {
  const mails: ReceivedMail[] = [];
  let losing = 0;
  let waiting = 0;
  let draw: DrawFailure | null = null;
  let isLosing = false;
  let requests = 0;
  let sessions = 0;

  function refusal(step: Parameters<MailServerStub["refuse"]>[0], about: string): Error | null {
    const words = end.refuse(step, about);
    if (words === undefined) return null;
    const [, code = "", text = ""] = /^(\d+) (.*)$/s.exec(words) ?? [];
    return Object.assign(new Error(text), { responseCode: Number(code) });
  }

  function hangUp(session: SMTPServerSession) {
    for (const connection of server.connections) {
      const { session: its, _socket: socket } = connection as unknown as Connection;
      if (its.id === session.id) socket.destroy();
    }
  }

  const server = new SMTPServer({
    disabledCommands: ["STARTTLS"],
    authOptional: true,
    logger: false,
    ...options,
    onConnect(_session, done) {
      sessions += 1;
      done(refusal("connect", ""));
    },
    onAuth({ username = "" }, _session, done) {
      done(refusal("auth", username), { user: username });
    },
    onMailFrom({ address }, session, done) {
      requests += 1;
      const failure = draw?.(true) ?? null;
      isLosing = failure === "lost";
      if (failure === "failed") return hangUp(session);
      if (waiting === 0) return done(refusal("from", address));
      waiting -= 1;
      done(Object.assign(new Error("4.2.0 Greylisted"), { responseCode: 450 }));
    },
    onRcptTo({ address }, _session, done) {
      done(refusal("to", address));
    },
    onData(stream, session, done) {
      readStream(stream).then(
        async (raw) => {
          const refused = refusal("data", raw);
          if (refused !== null) return done(refused);
          mails.push({
            mail: await PostalMime.parse(raw),
            raw,
            recipients: session.envelope.rcptTo.map(({ address }) => address),
            isSecure: session.secure,
            user: typeof session.user === "string" ? session.user : null,
          });
          if (losing === 0 && !isLosing) return done(null, "2.0.0 Ok: queued");
          losing = Math.max(0, losing - 1);
          hangUp(session);
        },
        (error: Error) => done(error),
      );
    },
  });
  server.on("error", () => undefined);
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.server.address() as AddressInfo;
  const end: MailServerStub = {
    port,
    mails,
    get sessions() {
      return sessions;
    },
    refuse: () => undefined,
    stub: null,
    config: { host: "127.0.0.1", port, security: "none", from: "plenum@example.com", to: ["operations@example.com"] },
    incidents: (): readonly ReceiverIncident[] => groupByThread(mails.map(({ mail }) => mail)),
    loseResponses(count) {
      losing = count;
    },
    throttle(count) {
      waiting = count;
    },
    failBy(by) {
      draw = by;
    },
    requests: () => requests,
    stop: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        for (const connection of server.connections) (connection as unknown as Connection)._socket.destroy();
      }),
  };
  return end;
}

interface Connection {
  readonly session: SMTPServerSession;
  readonly _socket: Socket;
}

function groupByThread(mails: readonly Email[]): ReturnType<ReceiverServer["incidents"]> {
  const threads = new Map<string, Email[]>();
  for (const mail of mails) {
    const root = /<([^@>]+)@/.exec(mail.references ?? "")?.[1] ?? mail.messageId ?? "";
    threads.set(root, [...(threads.get(root) ?? []), mail]);
  }
  return [...threads].map(([key, thread]) => ({
    key,
    isOpen: !/^(\S+ )?(Resolved|Løst): /.test(thread.at(-1)?.subject ?? ""),
    texts: thread.map(({ subject, text }) => `${subject}\n${text}`),
    messages: thread.length,
  }));
}

async function readStream(stream: AsyncIterable<Buffer>): Promise<string> {
  const parts: Buffer[] = [];
  for await (const part of stream) parts.push(part);
  return Buffer.concat(parts).toString();
}
