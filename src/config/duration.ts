// Durations live in the base, where every room may import them: import "src/duration.ts" instead of this file.
export { Duration } from "../duration.ts";
