import type { StateDatabaseDescription } from "./state-database.ts";

/** What a person should know of the server that keeps the state, a sentence each; empty when it keeps what it promises. */
export function durabilityWarnings({
  dataChecksums,
  synchronousCommit,
}: Pick<StateDatabaseDescription, "dataChecksums" | "synchronousCommit">): readonly string[] {
  const loss = LOSSES[synchronousCommit];
  return [
    ...(loss === undefined
      ? []
      : [
          `The server has synchronous_commit = ${synchronousCommit}, so ${loss}: set it to on for this user or database.`,
        ]),
    ...(dataChecksums
      ? []
      : ["The server has data_checksums off, so it would not notice a page that its disk has damaged."]),
  ];
}

/** What each setting loses that is less than `on`: https://www.postgresql.org/docs/15/runtime-config-wal.html */
const LOSSES: Readonly<Record<string, string>> = {
  off: "a crash of it loses what it had said to be committed",
  local: "a replica that takes over may lack what it had said to be committed",
};
