// A schedule has one colour, in a light page that of plots/style.py; those of one paper are shades of one hue.

const SCHEDULES = {
  "ds-moe": "#4d4d4d", "ds-moe-replicated": "#b0b0b0",
  tutel: "#0072b2", "tutel-improved": "#56b4e9", "pipemoe+lina": "#0b3c5d",
  fsmoe: "#d55e00", "fsmoe-interleaved": "#7a3500", "fsmoe-no-iio": "#e69f00", "fsmoe-no-partition": "#f2b98a",
  "fsmoe-dw": "#ff8c5a",
  "lina-baseline": "#a9dcc8", "lina-fixed": "#74c7a7", "lina-priority": "#3fb08a", "lina-partition": "#009e73",
  lina: "#006b4e", "lina-packed": "#003d2d",
  "parm-s1": "#ecc3da", "parm-s2-aas": "#dd9cc1", "parm-s2": "#cc79a7", parm: "#8f3f6f",
  "monta-baseline": "#e3d65c", "monta-o1": "#c9b81a", "monta-o2": "#a39400", "monta-o3": "#7a6f00", monta: "#4f4800",
  wave: "#17a2b8", "pair-1f1b": "#8fd8e4", lancet: "#52c0d2", flowmoe: "#0e7687", "chunked-ep": "#094a55",
};
// Colours for schedules of the user's own, and of later versions of the program.
const OTHERS = ["#5d3fd3", "#9a86e8", "#37208f", "#2a9d8f", "#c03b5b", "#7a6a53"];
const scheduleNames = ordered([...rows.distinct("schedule"), ...data.models.map((one) => one.schedule)]);
const FIRST = ["fsmoe", "tutel", "tutel-improved", "ds-moe", "fsmoe-no-iio", "pipemoe+lina", "lina", "monta"];
scheduleNames.sort((a, b) => (FIRST.indexOf(a) + 99) % 99 - (FIRST.indexOf(b) + 99) % 99 || a.localeCompare(b));
const unnamed = scheduleNames.filter((name) => !Object.hasOwn(SCHEDULES, name));

const channels = (colour) => [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16));
const isBright = ([r, g, b]) => 0.3 * r + 0.6 * g + 0.1 * b > 120;
const inkOn = (colour) => (isBright(channels(colour)) ? "#000" : "#fff");
/** Returns a colour for a dark page: equally saturated, with all shades between medium and bright. */
function onDark(colour) {
  const parts = channels(colour), middle = (Math.max(...parts) + Math.min(...parts)) / 2;
  const target = 85 + 0.6 * middle, room = (at) => Math.min(at, 255 - at);
  const stretch = Math.min(1, room(target) / room(middle));
  const moved = parts.map((part) => Math.round(target + (part - middle) * stretch));
  return `#${moved.map((part) => part.toString(16).padStart(2, "0")).join("")}`;
}
const lightColour = (name) => (Object.hasOwn(SCHEDULES, name) ? SCHEDULES[name]
  : OTHERS[unnamed.indexOf(name) % OTHERS.length]);

// CSS variables, so that the page follows its reader's colour scheme and prints light.
const variablesOf = (colourOf) => `:root { ${scheduleNames.map((name, i) =>
  `--schedule-${i}: ${colourOf(name)}; --ink-${i}: ${inkOn(colourOf(name))};`).join(" ")} }`;
document.head.append(Object.assign(document.createElement("style"), { textContent: variablesOf(lightColour) +
  `@media screen and (prefers-color-scheme: dark) { ${variablesOf((name) => onDark(lightColour(name)))} }` }));
const scheduleColour = (name) => `var(--schedule-${scheduleNames.indexOf(name)})`;
const scheduleInk = (name) => `var(--ink-${scheduleNames.indexOf(name)})`;
