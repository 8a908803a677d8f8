/**
 * How much of what is random or repeated a run tries: CI all of it, another machine a part, so that whoever changes
 * something has all tests within minutes. Each behaviour is tested in both; only how often differs.
 */
export function sized<T>(inCi: T, elsewhere: T): T {
  return process.env.CI === "true" ? inCi : elsewhere;
}
