/** Parts of a Nordic component code (NS 3457-7, TFM): `+b1=432.001-OE001_Energi`. */
export interface ComponentCode {
  /** Location after `+`, such as `b1`; null when the code states none. */
  readonly location: string | null;
  /** System, such as `432.001`. */
  readonly system: string;
  /** Component, such as `OE001`; null for a point of the complete system, such as `320.001_Drift`. */
  readonly component: string | null;
  /** Text after `_` that names a point of the component, such as `Energi`; null when there is none. */
  readonly point: string | null;
}

const COMPONENT_CODE =
  /^(?:\+(?<location>[\p{L}\d._-]+)=|=)?(?<system>\d{3}\.\d{3})(?:-(?<component>[A-Z]{2,3}\d{2,4}))?(?:_(?<point>[\p{L}\d%._-]+))?$/u;

/** Splits a name that is a complete component code. Returns null for every other name, because it never guesses. */
export function splitComponentCode(name: string): ComponentCode | null {
  const { location = null, system, component = null, point = null } = COMPONENT_CODE.exec(name)?.groups ?? {};
  if (system === undefined || (component ?? point) === null) return null;
  return { location, system, component, point };
}

/** Returns the levels of a component code from the location to the component with its point. */
export function componentCodeLevels({ location, system, component, point }: ComponentCode): readonly string[] {
  const componentAndPoint = [component, point].filter((part) => part !== null).join("_");
  return location === null ? [system, componentAndPoint] : [location, system, componentAndPoint];
}
