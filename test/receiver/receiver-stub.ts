import type {
  AlarmReceiver,
  IncidentMessage,
  IncidentReference,
} from "#connectors/shared/receiver/receiver-interface.ts";
import { Retryable } from "#src/core/errors/errors.ts";

export interface StubIncident {
  readonly id: number;
  readonly key: string;
  isOpen: boolean;
  readonly changeLog: string[];
  message: IncidentMessage;
}

export interface ReceiverStub extends AlarmReceiver {
  readonly incidents: StubIncident[];
  readonly calls: string[];
  failCall: (isDone: boolean, action: string, message: IncidentMessage) => void;
  isSearchable: boolean;
  readonly findCount: () => number;
}

export function createStub(repeatedOpenEffect: AlarmReceiver["repeatedOpenEffect"], more: Partial<AlarmReceiver> = {}) {
  const incidents: StubIncident[] = [];
  let findCount = 0;

  function changeIncident(action: string, message: IncidentMessage, change: () => StubIncident | undefined) {
    stub.failCall(false, action, message);
    const line = `${action} ${message.status} ${message.text.title}`;
    const incident = change();
    if (incident === undefined) return "gone";
    incident.changeLog.push(line);
    incident.message = message;
    stub.calls.push(line);
    stub.failCall(true, action, message);
    return { ref: incident.id, ticket: `N-${incident.id}`, link: null };
  }

  const at = ({ ref }: IncidentReference) => incidents.find(({ id }) => id === ref);
  const stub: ReceiverStub = {
    repeatedOpenEffect,
    incidents,
    calls: [],
    failCall: () => undefined,
    isSearchable: true,
    findCount: () => findCount,
    async open(message) {
      const reference = changeIncident("open", message, () => {
        const existing = repeatedOpenEffect === "same" ? incidents.find(({ key }) => key === message.key) : undefined;
        if (existing !== undefined) {
          existing.isOpen = true;
          return existing;
        }
        const incident: StubIncident = {
          id: incidents.length + 1,
          key: message.key,
          isOpen: true,
          changeLog: [],
          message,
        };
        incidents.push(incident);
        return incident;
      });
      if (reference === "gone") throw new Error("The stub opens every incident.");
      return reference;
    },
    update: async (message, reference) =>
      changeIncident("update", message, () => {
        const incident = at(reference);
        if (incident !== undefined && message.change === "retriggered") incident.isOpen = true;
        return incident;
      }),
    close: async (message, reference) =>
      changeIncident("close", message, () => {
        const incident = at(reference);
        if (incident !== undefined) incident.isOpen = false;
        return incident;
      }),
    ...(repeatedOpenEffect === "findable"
      ? {
          async find(message) {
            findCount += 1;
            if (!stub.isSearchable) throw new Retryable("The search is unavailable.");
            const incident = incidents.find(({ key }) => key === message.key);
            return incident === undefined ? null : { ref: incident.id, ticket: `N-${incident.id}`, link: null };
          },
        }
      : {}),
    probe: async () => undefined,
    dispose: async () => undefined,
    ...more,
  };
  return stub;
}
