import { usePolled } from "/asking.mjs";
import { html } from "/htm.mjs";
import { t } from "/language.mjs";
import { Stale } from "/parts.mjs";
import { counted, dayOf, shown } from "/words.mjs";

/** Alarms by day, as bars that are stacked by priority. */

const EVERY_MS = 60_000;

export function AlarmDays({ source = null, site = null }) {
  const asked = new URLSearchParams();
  if (source !== null) asked.set("source", source);
  if (site !== null) asked.set("site", String(site));
  const answer = usePolled(`/api/alarm-days?${asked}`, null, EVERY_MS);
  return html`<section class="panel days">
    <h2>${t("Alarms by day")} <span class="of">${t("raised in the last 30 days")}</span></h2>
    <${Stale} answer=${answer} />
    ${answer.data === null ? html`<div class="bars"></div>` : html`<${DayBars} bars=${answer.data} />`}
  </section>`;
}

/** `YYYY-MM-DD` as people say it; a day of UTC, which is the reader's but for a few hours. */
const dayWords = (day) => dayOf(Date.parse(`${day}T12:00:00Z`));

export function DayBars({ bars }) {
  const { days, byPriority } = bars;
  const priorities = Object.keys(byPriority).toSorted();
  const sums = days.map((_, n) => priorities.reduce((sum, each) => sum + byPriority[each][n], 0));
  const all = sums.reduce((a, b) => a + b, 0);
  if (days.length === 0 || all === 0) return html`<p class="quiet">${t("No alarm was raised.")}</p>`;
  const most = Math.max(...sums);
  const worst = days[sums.indexOf(most)];
  const words = t("{alarms}; most on {day}: {count}", {
    alarms: counted(all, "alarm"),
    day: dayWords(worst),
    count: shown(most),
  });
  return html`<div class="bars" role="img" aria-label=${words}>
      ${days.map((day, n) => {
        const parts = priorities.filter((each) => byPriority[each][n] > 0);
        const title = [dayWords(day), ...parts.map((each) => `${each} ${shown(byPriority[each][n])}`)].join(" · ");
        return html`<i key=${day} class="day" title=${title}>${parts.map(
          (each) => html`<i class=${`p${each}`} style=${{ height: `${(100 * byPriority[each][n]) / most}%` }}></i>`,
        )}</i>`;
      })}
    </div>
    <p class="of ends"><span>${dayWords(days[0])}</span><span>${words}</span><span>${dayWords(days.at(-1))}</span></p>
    ${priorities.length > 1 && html`<p class="of key">${priorities.map((each) => html`<span><i class=${`p${each}`}></i> ${t("priority {name}", { name: each })}</span>`)}</p>`}`;
}
