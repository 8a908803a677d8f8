export function hostileTexts(): readonly string[] {
  const seeds = [
    ...["+", "#", "/", "//", "+/+", "../..", "a/b", "a/", "/a", "$SYS/broker", "$share/g/t"],
    ...["", " ", "%", "%2F", "%00"],
    ...["\u0000", "a\u0000b", "\n", "\r\n", "\u001b[31m", "\u007f", "\u0085", "\ufeff", "\ufffe", "\u2028", "\u202e"],
    ...["å", "a\u030a", "温度", "🌡️", "\ud800", "\udc00", "\ud800\ud800", "~", "_", '"', "'", "\\"],
    ...["cmd", "status", "reply", "worker", "__proto__", "constructor", "{id}", "{aspect}"],
    ...["x".repeat(129), "x".repeat(70_000), "å".repeat(70_000)],
  ];
  const textShapes = [
    (text: string) => text,
    (text: string) => `${text}1`,
    (text: string) => `1${text}`,
    (text: string) => `1${text}2`,
    (text: string) => `${text}/set`,
    (text: string) => `cmd/${text}`,
    (text: string) => `${text}+`,
    (text: string) => `${text}#`,
    (text: string) => `$${text}`,
    (text: string) => `${text}\u0000`,
  ];
  return textShapes.flatMap((shape) => seeds.map(shape));
}
