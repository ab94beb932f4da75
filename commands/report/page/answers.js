// The answer of a layer, and its schedules as bars.

const BASELINES = ["tutel", "ds-moe"];
const PLAN_FLAGS = ["micro_op_bytes", "min_chunk_bytes"];

const shellWord = (value) => {
  const text = String(value);
  return /^[\w.+:@\/-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;
};
const shellLine = (words) => words.map(shellWord).join(" ");
/** Returns the value that a command gave a flag; undefined if it gave none. */
function flagOf(argv, flag) {
  const at = argv.findIndex((word) => word === flag || word.startsWith(`${flag}=`));
  return argv[at] === flag ? argv[at + 1] : argv[at]?.slice(flag.length + 1);
}
const ran = (row) => (rows.get(row, "passes") ?? 0) > 0;

const isStack = (layer) => ["layers", "micro_batches", "pp"].some((name) => (layers.get(layer, name) ?? 1) > 1);

/** Returns the command that plans this row again, or runs it if it ran; for a stack, the command of its run. */
function commandOf(row) {
  const layer = rows.get(row, "layer");
  const argv = data.runs[layers.get(layer, "run")].argv;
  // Records have no flags for a plan file or a stack of layers, so the command of their run is used.
  if (layers.get(layer, "batch") === null || isStack(layer) || rows.get(row, "plan") !== null) return shellLine(argv);
  const words = ["./moetune", ran(row) ? "layerbench" : "simulate", "--cluster",
    flagOf(argv, "--cluster") ?? layers.get(layer, "cluster"),
    "--schedule", scheduleOf(row), "--degree-forward", rows.get(row, "degree_forward"), "--degree-backward",
    rows.get(row, "degree_backward")];
  for (const { name, flag, given, usual } of data.shape_flags) {
    const value = (name === "capacity_rounding" && rows.get(row, name)) || layers.get(layer, name);
    if (given && value === given) words.push(flag);
    else if (!given && value !== null && value !== usual) words.push(flag, value);
  }
  for (const name of PLAN_FLAGS)
    if (rows.get(row, name) !== null) words.push(`--${name.replaceAll("_", "-")}`, rows.get(row, name));
  if (argv.includes("--nearest")) words.push("--nearest");
  return shellLine(words);
}

function settingsOf(row) {
  const lines = [`schedule = ${JSON.stringify(scheduleOf(row))}`,
    `degree_forward = ${rows.get(row, "degree_forward")}`, `degree_backward = ${rows.get(row, "degree_backward")}`];
  const inside = rows.get(row, "predicted_gar_in_moe_bytes");
  if (inside !== null) lines.push(`gar_in_moe_bytes = ${inside}`);
  return lines.join("\n");
}

/** Copies an element's text; if the browser does not allow that, selects it for the reader to copy. */
async function copy(shown, button) {
  let told = "copied";
  try {
    await navigator.clipboard.writeText(shown.textContent);
  } catch {
    getSelection().selectAllChildren(shown);
    if (!document.execCommand("copy")) told = "selected: Ctrl+C copies it";
  }
  button.textContent = told;
  setTimeout(() => { button.textContent = "copy"; }, 2500);
}
/** Keeps each flag and its value on one line, because browsers break lines at hyphens. */
const unbroken = (line) => line.split(/(?= --)/).flatMap((part) => {
  const [, blank, words] = part.match(/^( ?)([^]*)$/);
  return [blank, html("span", {}, words)];
});
function copyable(title, text) {
  const shown = html("pre", {}, ...(text.includes("\n") ? [text] : unbroken(text)));
  return html("div", { class: "copyable" },
    html("div", {}, title, " ", html("button", { onclick: (event) => copy(shown, event.target) }, "copy")), shown);
}

/** Returns the bytes of memory in the record, else those of the replay. */
function memoryOf(row) {
  const replayed = replayOf.get(rows.get(row, "layer"))?.schedules.find((one) => one.row === row);
  return rows.get(row, "predicted_memory_bytes") ?? (replayed ? memoryTotal(replayed) : null);
}
const degreesText = (row) => `r_f ${rows.get(row, "degree_forward")}, r_b ${rows.get(row, "degree_backward")}`;
const fact = (name, value, note) => html("div", { class: "fact" }, html("b", {}, value), html("span", {}, name),
  note ? html("small", {}, note) : null);

// Titles of an answer's parts, in the order of the page. Others keep their label.
const PART_TITLES = { QUESTION: "Model and groups", SHAPE: "Search for a shape", USE: "Use", YOURS: "Yours",
  WHY: "Why", "SAFE?": "Safe?", "SET IT": "Set it", NEXT: "Next", PRICES: "Notes on prices", "NOT HERE": "Cannot be used here" };
// A command, possibly after a title and before a remark in brackets.
const VERBS = "export|launch|layerbench|memory|modelbench|simulate|tune";
const COMMAND = new RegExp(`^(?:(.*): )?((?:\\./)?moetune (?:${VERBS}) [^(]*[^( ])(?: (\\(.*\\)))?$`);
function itemOf(item) {
  const [, title, command, remark] = item.match(COMMAND) ?? [];
  return command ? copyable([title, remark].filter(Boolean).join(" "), command) : html("p", {}, item);
}
/** A part of an answer, as in its record. */
function partOf({ label, items, table: cells }) {
  const told = items.map(itemOf);
  if (cells.length > 0) told.push(foldedTable(cells[0], cells.slice(1)));
  return [html("dt", {}, PART_TITLES[label] ?? label), html("dd", { "data-part": label }, ...told)];
}
const partNamed = (answer, label) => answer.parts.find((part) => part.label === label);
const partsList = (answer) => html("dl", { class: "parts" },
  ...answer.parts.filter((part) => part.label !== "VERDICT").flatMap(partOf));

/** The figures of the recommended row, as in the answer's table. */
function factsOfAnswer(answer) {
  const [heads, ...lines] = partNamed(answer, "USE").table;
  const line = lines.find(([name]) => name === `${answer.schedule} (use)`);
  return line.flatMap((cell, i) => (i < 3 || cell === "-" ? [] : [fact(heads[i], cell)]));
}

/** The verdict of a layer's own runs on the recommended row, if its records have no answer. */
function verdictOf(best, { time, list }) {
  const tutel = list.find((row) => scheduleOf(row) === "tutel");
  if (tutel === undefined || best === tutel || predicted(best) === null) return "";
  const gain = foretold(tutel, time) / foretold(best, time), told = `predicted ${times(gain)} over tutel`;
  if (time !== measured) return `${told}, not run`;
  const worst = Math.max(...list.map((row) => Math.abs(errorOf(row)))), run = measured(tutel) / measured(best);
  return `${Math.abs(gain - 1) <= worst ? "within the error: " : ""}${told}, ran ` +
    (run < 1 ? `slower (${times(run)})` : times(run));
}

/** The row to use: that of the answer, if the records have one, even if its run failed. */
function rowToUse(order) {
  const answer = answerOf(state.layer);
  return rows.indices().find((row) => rows.get(row, "layer") === state.layer && scheduleOf(row) === answer?.schedule)
    ?? recommendedOf(order);
}

function drawAnswer() {
  const order = ranked(state.layer), answer = answerOf(state.layer);
  if (order.list.length === 0) {
    const all = rows.indices().filter((row) => rows.get(row, "layer") === state.layer);
    show("card", html("p", {}, "No schedule of this layer has a time."), table(["schedule", "status", "why"],
      all.map((row) => [scheduleOf(row), rows.get(row, "status"), rows.get(row, "reason") ?? ""])));
    return;
  }
  const best = rowToUse(order);
  const verdict = answer ? partNamed(answer, "VERDICT").items[0] : verdictOf(best, order);
  const head = [html("p", { class: "best" }, html("strong", {}, scheduleOf(best)), ` with ${degreesText(best)}`),
    verdict ? html("p", { class: "verdict" }, verdict) : null];
  const commands = html("div", { class: "pair" }, copyable("Command", commandOf(best)),
    copyable("Settings", settingsOf(best)));
  const all = answer ? [html("div", { class: "facts" }, ...factsOfAnswer(answer)), partsList(answer)]
    : [...closeRows(best, order), html("div", { class: "facts" }, ...factsOfRow(best, order))];
  show("card", ...head, ...all, commands);
}

/** Rows that ran equally fast, or that the runs cannot distinguish. */
function closeRows(best, { time, list }) {
  const others = list.filter((row) => row !== best), names = (some) => some.map(scheduleOf).join(", ");
  const faster = others.filter((row) => time(row) < (1 - CLEARLY) * time(best));
  const alike = time === measured ? others.filter((row) => !faster.includes(row) && time(row) < 1.01 * time(best)) : [];
  const notClearly = time === measured ? "Ran faster, but not clearly so" : "Predicted faster, but ran clearly slower";
  return [faster.length ? `${notClearly}: ${names(faster)}.` : "",
    alike.length ? `Within 1 %, which runs do not tell apart: ${names(alike)}.` : ""].filter(Boolean)
    .map((text) => html("p", {}, text));
}

function factsOfRow(best, { time, list }) {
  const of = (name) => list.find((row) => scheduleOf(row) === name);
  const facts = [fact("predicted", seconds(foretold(best, time)))];
  if (measured(best) !== null && foretold(best, time) !== predicted(best))
    facts.push(fact(`predicted, rows ${rows.get(best, "capacity_rounding")}`, seconds(predicted(best)), "as they ran"));
  if (measured(best) !== null) {
    const low = rows.get(best, "low_s"), high = rows.get(best, "high_s");
    facts.push(fact(rows.get(best, "emulated") ? "measured, EMULATED" : "measured", seconds(measured(best)),
      low === null ? null : `${seconds(low)} to ${seconds(high)}`));
    if (predicted(best) !== null)
      facts.push(fact("measured over predicted", percent(measured(best) / predicted(best) - 1)));
  }
  for (const name of BASELINES)
    if (of(name) !== undefined && of(name) !== best)
      facts.push(fact(`over ${name}`, times(time(of(name)) / time(best)), degreesText(of(name))));
  const bound = rows.get(best, "bound_s");
  if (bound !== null && predicted(best))
    facts.push(fact("of its own bound", `${(100 * bound / predicted(best)).toFixed(1)} %`));
  const memory = memoryOf(best);
  if (memory !== null) facts.push(fact("a rank needs", bytes(memory)));
  return facts;
}

function barsText(list, time) {
  const any = (value) => list.some((row) => value(row) !== null);
  const kinds = [any((row) => foretold(row, time)) && "predicted (outlined)", any(measured) && "measured (filled)"];
  const quartiles = list.some((row) => rows.get(row, "passes") >= 4);
  return `Bars: ${kinds.filter(Boolean).join(" and ")}, forward + backward. ` +
    (any((row) => rows.get(row, "low_s"))
      ? `Whiskers: ${quartiles ? "quartiles" : "the least and the most"} of the passes. ` : "") +
    (any((row) => rows.get(row, "bound_s"))
      ? "The thin tick is the bound that no degrees and no split of this schedule go below." : "");
}

const SAME_TIME = 1e-9;  // relative difference
/** Groups of rows in order: those with the same time and degrees as the first row of a group belong to it. */
function folded(list, time) {
  const groups = [];
  for (const row of list) {
    const first = groups.at(-1)?.[0];
    const same = first !== undefined && measured(row) === null && measured(first) === null &&
      Math.abs(time(row) / time(first) - 1) <= SAME_TIME && degreesText(row) === degreesText(first);
    if (same) groups.at(-1).push(row);
    else groups.push([row]);
  }
  return groups;
}

const CUT_BEYOND = 2.5, CUT_GAP = 1.5;  // times the middle bar, times the longest of the others
/** Returns where bars end: outliers are cut, so that the others can be distinguished. */
function limitOf(ends) {
  const beyond = CUT_BEYOND * median(ends), inside = ends.filter((end) => end <= beyond);
  const outside = ends.filter((end) => end > beyond), cuts = least([...outside, Infinity]) > CUT_GAP * most(inside);
  return outside.length > 0 && cuts ? 1.1 * most(inside) : most(ends);
}
/** Two slanted gaps mark a bar that is cut. */
const cutMarks = (x, y, height) => svg("path", { class: "cut",
  d: `M${x - 18},${y + height}l6,${-height}M${x - 10},${y + height}l6,${-height}` });

/** A bar of seconds between its label and its text: the guess outlined, the run filled, a whisker, the bound. */
function timeBar(top, left, x, { label, schedule, guess, ran, low, high, bound, end, isCut, told }) {
  const colour = scheduleColour(schedule);
  const group = svg("g", {}, svg("text", { x: left - 8, y: top + 15, "text-anchor": "end" }, label));
  if (guess !== null)
    group.append(svg("rect", { x: left, y: top, width: x(guess) - left, height: 22, fill: colour, stroke: colour,
      class: "predicted" }));
  if (ran !== null)
    group.append(svg("rect", { x: left, y: top + 5, width: x(ran) - left, height: 12, fill: colour,
      class: "schedule" }));
  if (low !== null && high !== null) group.append(svg("path", { class: "whisker",
    d: `M${x(low)},${top + 7}v8M${x(low)},${top + 11}H${x(high)}M${x(high)},${top + 7}v8` }));
  if (bound !== null)
    group.append(svg("rect", { class: "bound", x: x(bound) - 1, y: top - 2, width: 2, height: 26 }));
  if (isCut) group.append(cutMarks(x(end), top - 1, 24));
  group.append(svg("text", { x: x(end) + 6, y: top + 15 }, told));
  return group;
}

function drawBars() {
  const { time, list: all } = ranked(state.layer), groups = folded(all, time), list = groups.map(([first]) => first);
  const width = widthOf("bars"), left = 128, step = 30;
  const right = width - (width < 640 ? 132 : 150);
  const ends = list.map((row) => Math.max(foretold(row, time) ?? 0, measured(row) ?? 0, rows.get(row, "high_s") ?? 0));
  const limit = limitOf([...ends, SMALLEST].filter((end) => end > 0));
  const scale = linearScale(0, limit, left, right), x = (value) => scale(Math.min(value, limit));
  const root = canvas(width, list.length * step + 4, "times of schedules");
  list.forEach((row, i) => {
    const top = i * step + 4, isCut = ends[i] > limit, guess = foretold(row, time);
    const low = rows.get(row, "low_s"), high = rows.get(row, "high_s"), bound = rows.get(row, "bound_s");
    const group = timeBar(top, left, x, { schedule: scheduleOf(row), guess, ran: measured(row), low, high, bound,
      label: scheduleOf(row) + (groups[i].length > 1 ? ` +${groups[i].length - 1}` : ""), end: ends[i], isCut,
      told: `${seconds(time(row))}  ` +
        (isCut ? "bar cut" : `${rows.get(row, "degree_forward")}/${rows.get(row, "degree_backward")}`) });
    group.prepend(svg("rect", { x: 0, y: top, width, height: step - 4, fill: "transparent" }));
    root.append(withTip(group, () => [`${groups[i].map(scheduleOf).join(", ")}, ${degreesText(row)}`,
      `predicted ${seconds(guess)}`, `measured ${seconds(measured(row))}` +
      (low === null ? "" : `, ${seconds(low)} to ${seconds(high)} of ${rows.get(row, "passes")} passes`),
      `bound ${seconds(bound)}`]));
  });
  byId("bars-text").textContent = barsText(list, time);
  const several = groups.filter((group) => group.length > 1).map(([first, ...others]) =>
    `${scheduleOf(first)} = ${others.map(scheduleOf).join(", ")}`);
  byId("bars-folded").textContent = several.length > 0 ? `The same time at the same degrees: ${several.join("; ")}.` : "";
  show("bars", root);
}
