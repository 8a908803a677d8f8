import type { IncidentMessage, IncidentReference, Receiver } from "#connectors/shared/receiver/receiver.ts";
import { Retryable } from "#src/core/errors/errors.ts";

export interface Note {
  readonly id: number;
  readonly key: string;
  isOpen: boolean;
  readonly said: string[];
  told: IncidentMessage;
}

export interface NoticeBoard extends Receiver {
  readonly notes: Note[];
  readonly said: string[];
  trouble: (isDone: boolean, what: string, told: IncidentMessage) => void;
  isSearchable: boolean;
  readonly finds: () => number;
}

export const failBefore = (error: Error) => (isDone: boolean) => {
  if (!isDone) throw error;
};

export const failAfter = (error: Error) => (isDone: boolean) => {
  if (isDone) throw error;
};

export function noticeBoard(opensAgain: Receiver["opensAgain"], more: Partial<Receiver> = {}): NoticeBoard {
  const notes: Note[] = [];
  let finds = 0;

  function put(what: string, told: IncidentMessage, change: () => Note | undefined): IncidentReference | "gone" {
    board.trouble(false, what, told);
    const line = `${what} ${told.status} ${told.text.title}`;
    const note = change();
    if (note === undefined) return "gone";
    note.said.push(line);
    note.told = told;
    board.said.push(line);
    board.trouble(true, what, told);
    return { ref: note.id, ticket: `N-${note.id}`, link: null };
  }

  const at = ({ ref }: IncidentReference) => notes.find(({ id }) => id === ref);
  const board: NoticeBoard = {
    opensAgain,
    notes,
    said: [],
    trouble: () => undefined,
    isSearchable: true,
    finds: () => finds,
    async open(told) {
      const place = put("open", told, () => {
        const same = opensAgain === "same" ? notes.find(({ key }) => key === told.key) : undefined;
        if (same !== undefined) {
          same.isOpen = true;
          return same;
        }
        const note: Note = { id: notes.length + 1, key: told.key, isOpen: true, said: [], told };
        notes.push(note);
        return note;
      });
      if (place === "gone") throw new Error("A board takes everything.");
      return place;
    },
    update: async (told, place) =>
      put("update", told, () => {
        const note = at(place);
        if (note !== undefined && told.change === "retriggered") note.isOpen = true;
        return note;
      }),
    close: async (told, place) =>
      put("close", told, () => {
        const note = at(place);
        if (note !== undefined) note.isOpen = false;
        return note;
      }),
    ...(opensAgain === "findable"
      ? {
          async find(told) {
            finds += 1;
            if (!board.isSearchable) throw new Retryable("The search is not to be had.");
            const note = notes.find(({ key }) => key === told.key);
            return note === undefined ? null : { ref: note.id, ticket: `N-${note.id}`, link: null };
          },
        }
      : {}),
    probe: async () => undefined,
    dispose: async () => undefined,
    ...more,
  };
  return board;
}
