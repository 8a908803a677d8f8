import type {
  AlarmReceiver,
  IncidentMessage,
  IncidentReference,
} from "#connectors/shared/receiver/receiver-interface.ts";
import { Retryable } from "#src/core/errors/errors.ts";

export interface BoardNote {
  readonly id: number;
  readonly key: string;
  isOpen: boolean;
  readonly changeLog: string[];
  message: IncidentMessage;
}

export interface NoticeBoard extends AlarmReceiver {
  readonly notes: BoardNote[];
  readonly said: string[];
  failCall: (isDone: boolean, what: string, told: IncidentMessage) => void;
  isSearchable: boolean;
  readonly finds: () => number;
}

export function createNoticeBoard(
  repeatedOpenEffect: AlarmReceiver["repeatedOpenEffect"],
  more: Partial<AlarmReceiver> = {},
) {
  const notes: BoardNote[] = [];
  let finds = 0;

  function changeNote(what: string, told: IncidentMessage, change: () => BoardNote | undefined) {
    board.failCall(false, what, told);
    const line = `${what} ${told.status} ${told.text.title}`;
    const note = change();
    if (note === undefined) return "gone";
    note.changeLog.push(line);
    note.message = told;
    board.said.push(line);
    board.failCall(true, what, told);
    return { ref: note.id, ticket: `N-${note.id}`, link: null };
  }

  const at = ({ ref }: IncidentReference) => notes.find(({ id }) => id === ref);
  const board: NoticeBoard = {
    repeatedOpenEffect,
    notes,
    said: [],
    failCall: () => undefined,
    isSearchable: true,
    finds: () => finds,
    async open(told) {
      const reference = changeNote("open", told, () => {
        const sameNote = repeatedOpenEffect === "same" ? notes.find(({ key }) => key === told.key) : undefined;
        if (sameNote !== undefined) {
          sameNote.isOpen = true;
          return sameNote;
        }
        const note: BoardNote = { id: notes.length + 1, key: told.key, isOpen: true, changeLog: [], message: told };
        notes.push(note);
        return note;
      });
      if (reference === "gone") throw new Error("A board takes everything.");
      return reference;
    },
    update: async (told, reference) =>
      changeNote("update", told, () => {
        const note = at(reference);
        if (note !== undefined && told.change === "retriggered") note.isOpen = true;
        return note;
      }),
    close: async (told, reference) =>
      changeNote("close", told, () => {
        const note = at(reference);
        if (note !== undefined) note.isOpen = false;
        return note;
      }),
    ...(repeatedOpenEffect === "findable"
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
