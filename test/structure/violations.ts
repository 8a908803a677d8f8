import { isPattern, ownPart, type Room } from "./rooms.ts";

/** What each file imports: files from the root of the project on, and names of packages. */
export type Imports = ReadonlyMap<string, readonly string[]>;

/** A sentence for each file without a row, and for each import that the table does not allow. */
export function violations(rooms: readonly Room[], imports: Imports): readonly string[] {
  const found: string[] = [];
  for (const [file, targets] of imports) {
    const home = homeOf(rooms, file);
    if (home === undefined) {
      found.push(`${file} stands in no row of the table of rooms.`);
      continue;
    }
    for (const target of targets) {
      if (allowance(rooms, home, target) !== undefined) continue;
      found.push(`${file} imports ${target}, which the row "${home.room.title}" does not allow.`);
    }
  }
  return found;
}

/** A sentence for each word of the table that says nothing (any more): no such file, or nobody uses the permission. */
export function unused(rooms: readonly Room[], imports: Imports): readonly string[] {
  const files = [...imports.keys()];
  const found: string[] = [];
  const used = new Map(rooms.map((room) => [room, new Set<string>()]));
  for (const [file, targets] of imports) {
    const home = homeOf(rooms, file);
    if (home === undefined) continue;
    for (const target of targets) used.get(home.room)?.add(allowance(rooms, home, target) ?? "");
  }
  for (const room of rooms) {
    for (const pattern of room.patterns) {
      if (!files.some((file) => ownPart(pattern, file) !== null))
        found.push(`No file fits ${pattern} (${room.title}).`);
    }
    for (const item of [...room.mayImport, ...room.packages]) {
      if (!used.get(room)?.has(item)) found.push(`Nobody in "${room.title}" imports ${item} (any more).`);
    }
  }
  return found;
}

interface Home {
  readonly room: Room;
  /** Which of the rooms of this row, where the row stands for several. */
  readonly own: string;
  readonly length: number;
}

function homeOf(rooms: readonly Room[], file: string): Home | undefined {
  const homes = rooms.flatMap((room) =>
    room.patterns.flatMap((pattern) => {
      const own = ownPart(pattern, file);
      return own === null ? [] : [{ room, own, length: pattern.replace("<name>", "*").length }];
    }),
  );
  return homes.reduce<Home | undefined>(
    (best, home) => (best === undefined || home.length > best.length ? home : best),
    undefined,
  );
}

/** The word of the table that allows the import. */
function allowance(rooms: readonly Room[], home: Home, target: string): string | undefined {
  const { room } = home;
  const isOurs = /^(src|connectors)\//.test(target);
  if (!isOurs) return room.packages.find((name) => isPackage(name, target));
  const there = homeOf(rooms, target);
  if (there?.room === room && there.own === home.own) return "itself";
  const fits = (item: string) =>
    isPattern(item) ? ownPart(item, target) !== null : there !== undefined && there.room.name === item;
  // A file that is named counts before the room that it is in.
  return room.mayImport.toSorted((a, b) => b.length - a.length).find(fits);
}

/** `mqtt` is `mqtt/…` too; the database is never what Node brings along. */
function isPackage(allowed: string, target: string): boolean {
  if (allowed === "node:*") return target.startsWith("node:") && target !== "node:sqlite";
  return target === allowed || target.startsWith(`${allowed}/`);
}
