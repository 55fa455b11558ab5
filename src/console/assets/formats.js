// How numbers, times and sizes are written.

const LANGUAGE = "en";
const dateTime = new Intl.DateTimeFormat(LANGUAGE, { dateStyle: "medium", timeStyle: "short" });
const clock = new Intl.DateTimeFormat(LANGUAGE, { hour: "2-digit", minute: "2-digit", second: "2-digit", hour12: false });
const relative = new Intl.RelativeTimeFormat(LANGUAGE, { numeric: "auto" });
const whole = new Intl.NumberFormat(LANGUAGE, { maximumFractionDigits: 0 });
const short = new Intl.NumberFormat(LANGUAGE, { maximumFractionDigits: 1 });
const STEPS = [["year", 31_557_600], ["month", 2_629_800], ["day", 86_400], ["hour", 3600], ["minute", 60]];

/** As “3 hours ago”, or “in 2 days”. */
export function ago(time, now = Date.now()) {
  const seconds = (new Date(time).getTime() - now) / 1000;
  const [unit, size] = STEPS.find(([, size]) => Math.abs(seconds) >= size) ?? ["second", 1];
  return relative.format(Math.round(seconds / size), unit);
}

export const date = (time) => dateTime.format(new Date(time));
export const timeOfDay = (time) => clock.format(new Date(time));
export const number = (value) => (Math.abs(value) >= 100 ? whole : short).format(value);
export const percent = (part) => `${number(part * 100)} %`;

/** Seconds as “1 h 5 min”, “42 s” or “0.4 s”. */
export function duration(seconds) {
  if (seconds < 10) return `${short.format(seconds)} s`;
  const total = Math.round(seconds);
  const parts = [[Math.floor(total / 86_400), "d"], [Math.floor(total / 3600) % 24, "h"],
    [Math.floor(total / 60) % 60, "min"], [total % 60, "s"]];
  const first = parts.findIndex(([value]) => value > 0);
  return parts.slice(first, first + 2).filter(([value]) => value > 0).map(([value, unit]) => `${value} ${unit}`).join(" ");
}

export function bytes(value) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let place = 0;
  while (value >= 1024 && place < units.length - 1) { value /= 1024; place += 1; }
  return `${number(value)} ${units[place]}`;
}
