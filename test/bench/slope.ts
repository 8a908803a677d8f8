/** Slope of figures that were taken at equal distances, in their unit for each step (least squares). */
export function slopeOf(figures: readonly number[]): number {
  const middle = (figures.length - 1) / 2;
  const mean = figures.reduce((sum, each) => sum + each, 0) / figures.length;
  return (
    figures.reduce((sum, each, n) => sum + (n - middle) * (each - mean), 0) /
    figures.reduce((sum, _, n) => sum + (n - middle) ** 2, 0)
  );
}
