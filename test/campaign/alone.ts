import { DatabaseSync } from "node:sqlite";

/**
 * Who plays a seed is alone with its states. SQLite asks the system for locks at every statement all the same, for
 * processes that may come, and where the files lie in memory that is half of what a small statement costs. So each state
 * is locked once, when it is opened. Everything else is as `plenum run` has it; what processes do to each other is for
 * the tests of the store.
 */
const { function: define } = DatabaseSync.prototype;

// A state is given its function for checksums before anything is read from it.
DatabaseSync.prototype.function = function defineAlone(this: DatabaseSync, ...definition: unknown[]): void {
  if (this.location()?.endsWith("plenum.db")) this.exec("pragma locking_mode = exclusive");
  Reflect.apply(define, this, definition);
};
