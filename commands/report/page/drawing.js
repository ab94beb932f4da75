// Elements, numbers for people, axes.

const SVG = "http://www.w3.org/2000/svg";

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value !== null && value !== undefined && value !== false) element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}
// Text is always inserted as text, whatever a record contains.
const html = (tag, attributes = {}, ...children) => fill(document.createElement(tag), attributes, children);
const svg = (tag, attributes = {}, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);
const byId = (id) => document.getElementById(id);
const show = (id, ...children) => byId(id).replaceChildren(...children.filter((child) => child !== null));

const SMALLEST = 1e-12;
const withUnit = (text, unit) => `${text}\u00a0${unit}`;  // on one line
const digits = (value, count) => Number(value.toPrecision(count)).toString();
function seconds(value) {
  if (value === null || !Number.isFinite(value)) return "-";
  const size = Math.abs(value);
  if (size < SMALLEST) return "0";
  if (size < 1e-3) return withUnit(digits(value * 1e6, 4), "us");
  return size < 1 ? withUnit(digits(value * 1e3, 5), "ms") : withUnit(digits(value, 4), "s");
}
function bytes(value) {
  if (value === null || !Number.isFinite(value)) return "-";
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  for (; value >= 1024 && unit + 1 < units.length; ++unit) value /= 1024;
  return withUnit(digits(value, 4), units[unit]);
}
const percent = (share) =>
  (share === null ? "-" : withUnit(`${share >= 0 ? "+" : ""}${(100 * share).toFixed(2)}`, "%"));
const count = (number, one) => `${number} ${one}${number === 1 ? "" : "s"}`;
const times = (ratio) => (Number.isFinite(ratio) ? `${ratio.toFixed(3)}x` : "-");

// Colours of models: Okabe and Ito's, which can be distinguished with any colour vision.
const PALETTE = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#d55e00", "#56b4e9", "#8a7a00", "#7f7f7f"];

// Families of tasks: a name, the colour and the hatch of plots/style.py, and the kinds. Families differ in hatch and
// lightness as well as in hue.
const KIND_FAMILIES = [
  ["attention and dense", "#454545", "", ["attention", "attention_dx", "attention_dw", "ffn", "shared", "embed",
    "head"]],
  ["gate and order", "#c8c8c8", "..", ["gate", "order", "i_order"]],
  ["AlltoAll", "#2f6db5", "", ["dispatch", "combine", "exchange", "sum"]],
  ["collectives of ESP", "#86cfa3", "///", ["allgather", "reducescatter", "allreduce", "gather"]],
  ["experts", "#ef8a1d", "", ["expert", "expert_dx", "expert_dw"]],
  ["gradients and weights", "#c9302c", "\\\\", ["gradient", "expert_gradient", "tied_gradient", "stage_gradient",
    "weights", "expert_weights", "stage_weights", "squares", "norm", "optimizer",
    "fetch", "store", "host_optimizer"]],
  ["other", "#b795d1", "xx", []],
];
const HATCHES = { "///": "M-1,1l2,-2M0,6l6,-6M5,7l2,-2", "\\\\": "M-1,5l2,2M0,0l6,6M5,-1l2,2", "..": "M1,2h2M4,5h2",
  xx: "M0,0l6,6M0,6l6,-6" };
const familyOf = (kind) => {
  const found = KIND_FAMILIES.findIndex(([, , , kinds]) => kinds.includes(kind));
  return found < 0 ? KIND_FAMILIES.length - 1 : found;
};
const kindFill = (kind) => `url(#family-${familyOf(kind)})`;
function startPatterns() {
  byId("patterns").replaceChildren(svg("defs", {}, ...KIND_FAMILIES.map(([, colour, hatch], i) =>
    svg("pattern", { id: `family-${i}`, width: 6, height: 6, patternUnits: "userSpaceOnUse" },
      svg("rect", { width: 6, height: 6, fill: colour }),
      hatch ? svg("path", { d: HATCHES[hatch], stroke: inkOn(colour), "stroke-width": 0.9, fill: "none",
        "stroke-opacity": 0.6 }) : null))));
}
const KIND_LETTERS = { dispatch: "D", allgather: "G", expert: "E", expert_dx: "E", expert_dw: "Y",
  attention_dx: "attention", attention_dw: "Y", reducescatter: "S", combine: "C", gradient: "g", attention: "attention",
  gate: "gate", shared: "shared", ffn: "ffn",
  copy: "copy", exchange: "X", gather: "H", sum: "+", allreduce: "R" };
const kindText = (kind) => kind.replaceAll("_", " ");

/** Ticks at 1, 2 or 5 times a power of ten. */
function linearTicks(low, high, count) {
  const raw = (high - low) / count, power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((candidate) => candidate >= raw);
  const ticks = [];
  for (let i = Math.ceil(low / step); i * step <= high * (1 + 1e-12); ++i) ticks.push(i * step);
  return ticks;
}
function logTicks(low, high) {
  const ticks = [];
  for (let power = Math.ceil(Math.log10(low) - 1e-9); 10 ** power <= high * 1.000001; ++power) ticks.push(10 ** power);
  return ticks.length > 1 ? ticks : linearTicks(low, high, 4);
}
/** Powers of two, at most six of them. */
function byteTicks(low, high) {
  const first = Math.ceil(Math.log2(low)), last = Math.floor(Math.log2(high)), step = Math.ceil((last - first + 1) / 6);
  const ticks = [];
  for (let power = first; power <= last; power += step) ticks.push(2 ** power);
  return ticks;
}
const linearScale = (low, high, from, to) => (value) => from + (value - low) / (high - low || 1) * (to - from);
function logScale(low, high, from, to) {
  const scale = linearScale(Math.log(low), Math.log(high), from, to);
  return (value) => scale(Math.log(value));
}

/** A picture that is never larger than drawn, because on paper the page may be wider. */
const canvas = (width, height, label, role = "img") => svg("svg", { viewBox: `0 0 ${width} ${height}`, role,
  "aria-label": label, style: `max-width:${width}px` });

const LETTER = 7;  // approximate width of a letter
/** Returns the ticks whose labels do not touch the one before. */
function apart(ticks, scale, text) {
  let end = -Infinity;
  return ticks.filter((tick) => {
    const half = String(text(tick)).length * LETTER / 2, from = scale(tick) - half;
    if (from < end + 6) return false;
    end = scale(tick) + half;
    return true;
  });
}

/** Makes labels beside points. Of labels that would overlap, only the first one is drawn, and none that would leave
 * the box. */
function labels(box) {
  const taken = [];
  return (x, y, text) => {
    const width = String(text).length * LETTER;
    for (const [left, anchor] of [[x - 6 - width, "end"], [x + 6, "start"]])
      for (const base of [y - 6, y + 14]) {
        const place = { left, right: left + width, top: base - 11, bottom: base + 3 };
        const free = place.left >= box.left && place.right <= box.right && place.top >= box.top &&
          place.bottom <= box.bottom && taken.every((one) => place.right < one.left || place.left > one.right ||
            place.bottom < one.top || place.top > one.bottom);
        if (!free) continue;
        taken.push(place);
        const at = anchor === "end" ? x - 6 : x + 6;
        return svg("text", { x: at, y: base, "text-anchor": anchor }, text);
      }
    return null;
  };
}

/** A chart's area in the element with that id, with axes: `x` and `y` are {low, high, log, text, title}. */
function plane(x, y, id, height = 300) {
  const width = Math.min(620, widthOf(id));
  const box = { left: 76, right: width - 12, top: 12, bottom: height - 40 };
  const scaleX = (x.log ? logScale : linearScale)(x.low, x.high, box.left, box.right);
  const scaleY = (y.log ? logScale : linearScale)(y.low, y.high, box.bottom, box.top);
  const root = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `${y.title} by ${x.title}` });
  const ticks = x.ticks ?? (x.log ? logTicks(x.low, x.high) : linearTicks(x.low, x.high, 6));
  for (const tick of apart(ticks, scaleX, x.text)) {
    root.append(svg("line", { class: "grid", x1: scaleX(tick), x2: scaleX(tick), y1: box.top, y2: box.bottom }),
      svg("text", { x: scaleX(tick), y: box.bottom + 14, "text-anchor": "middle" }, x.text(tick)));
  }
  for (const tick of y.ticks ?? (y.log ? logTicks(y.low, y.high) : linearTicks(y.low, y.high, 5))) {
    root.append(svg("line", { class: "grid", x1: box.left, x2: box.right, y1: scaleY(tick), y2: scaleY(tick) }),
      svg("text", { x: box.left - 5, y: scaleY(tick) + 4, "text-anchor": "end" }, y.text(tick)));
  }
  root.append(svg("text", { x: (box.left + box.right) / 2, y: height - 6, "text-anchor": "middle" }, x.title),
    svg("text", { transform: `translate(12 ${(box.top + box.bottom) / 2}) rotate(-90)`, "text-anchor": "middle" },
      y.title));
  return { root, box, x: scaleX, y: scaleY };
}

/** A table of HTML: `heads` are texts, cells texts or elements. */
function table(heads, lines) {
  const wide = html("div", { class: "wide", tabindex: 0, role: "region", "aria-label": `table: ${heads[0]}` },
    html("table", {}, html("thead", {}, html("tr", {}, ...heads.map((head) => html("th", {}, head)))),
      html("tbody", {}, ...lines.map((line) => html("tr", {}, ...line.map((cell) => html("td", {}, cell)))))));
  const place = html("div", {}, html("span", { class: "cue" }, "the table goes on to the right \u2192"), wide);
  globalThis.ResizeObserver && new ResizeObserver(() =>
    place.classList.toggle("scrolls", wide.scrollWidth > wide.clientWidth + 1)).observe(wide);
  return place;
}
const MOST_LINES = 8;
/** A table, folded if it is long. */
const foldedTable = (heads, lines) => (lines.length <= MOST_LINES ? table(heads, lines)
  : html("details", {}, html("summary", {}, `the whole table: ${lines.length} rows`), table(heads, lines)));
const familySwatch = (family) => html("span", { class: "swatch" }, svg("svg", { viewBox: "0 0 18 12" },
  svg("rect", { width: 18, height: 12, fill: `url(#family-${family})` })), KIND_FAMILIES[family][0]);
const swatch = (colour, text) => html("span", { class: "swatch" }, html("i", { style: `background:${colour}` }), text);

/** The text beside the pointer while it is over an element. */
function withTip(element, lines) {
  const tip = byId("tip");
  element.addEventListener("pointermove", (event) => {
    tip.replaceChildren(...lines().map((line) => html("div", {}, line)));
    tip.hidden = false;
    const left = Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 8);
    const below = event.clientY + 16 + tip.offsetHeight < innerHeight;
    tip.style.left = `${Math.max(4, left)}px`;
    tip.style.top = `${below ? event.clientY + 16 : event.clientY - tip.offsetHeight - 10}px`;
  });
  element.addEventListener("pointerleave", () => { tip.hidden = true; });
  return element;
}

/** Widths follow the page's width: a chart is drawn as wide as its place. */
const widthOf = (id) => Math.max(300, Math.round(byId(id).clientWidth || 900));
