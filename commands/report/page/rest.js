// Memory, models, pairs of launches, warnings, runs.

const MEMORY_PARTS = [["weights_bytes", "weights", "#0072b2"], ["gradients_bytes", "gradients", "#d55e00"],
  ["optimizer_bytes", "optimizer", "#e69f00"], ["activations_bytes", "activations", "#009e73"],
  ["buffers_bytes", "buffers", "#cc79a7"]];

const memoryTotal = (one) => MEMORY_PARTS.reduce((sum, [name]) => sum + one.memory[name], 0);
function drawMemory() {
  const schedules = replayOf.get(state.layer)?.schedules ?? [];
  byId("memory").hidden = schedules.length === 0;
  if (schedules.length === 0) return;
  const width = widthOf("memory-bars"), left = 128, most = Math.max(...schedules.map(memoryTotal)), step = 28;
  const x = linearScale(0, most, left, width - 110);
  const root = canvas(width, schedules.length * step, "memory");
  schedules.forEach((one, i) => {
    let sum = 0;
    root.append(svg("text", { x: left - 8, y: i * step + 16, "text-anchor": "end" }, one.schedule));
    for (const [name, text, colour] of MEMORY_PARTS) {
      const from = x(sum), value = one.memory[name];
      sum += value;
      root.append(withTip(svg("rect", { x: from, y: i * step + 2, width: x(sum) - from, height: 20, fill: colour }),
        () => [`${one.schedule}: ${text}`, `${bytes(value)} of ${bytes(memoryTotal(one))}`]));
    }
    root.append(svg("text", { x: x(sum) + 6, y: i * step + 16 }, bytes(sum)));
  });
  const legend = MEMORY_PARTS.map(([, text, colour]) => swatch(colour, text));
  show("memory-bars", root, html("div", { class: "legend" }, ...legend));
}

/** Steps of each model and schedule: predicted ones outlined, measured ones filled. */
function drawSteps() {
  const models = data.models.filter((one) => (one.measured_s ?? one.predicted_s) !== null), step = 30;
  const width = widthOf("model-bars"), left = 150, right = width - (width < 640 ? 132 : 190);
  if (models.length === 0) return show("model-bars");
  const ends = models.map((one) => Math.max(one.predicted_s ?? 0, one.measured_s ?? 0, one.high_s ?? 0));
  const limit = limitOf(ends), scale = linearScale(0, limit, left, right);
  const x = (value) => scale(Math.min(value, limit));
  const names = [...new Set(models.map(modelName))], height = names.length * 20 + models.length * step;
  const root = canvas(width, height, "seconds a step");
  let top = 0;
  for (const name of names) {
    root.append(svg("text", { class: "title", x: 2, y: top + 14 }, name));
    top += 20;
    models.forEach((one, i) => {
      if (modelName(one) !== name) return;
      const isCut = ends[i] > limit;
      const group = timeBar(top, left, x, { label: one.schedule, schedule: one.schedule, guess: one.predicted_s,
        ran: one.measured_s, low: one.low_s, high: one.high_s, bound: null, end: ends[i], isCut,
        told: `${seconds(one.measured_s ?? one.predicted_s)}${isCut ? "  bar cut" : ""}` +
          (one.emulated && width >= 640 ? "  EMULATED" : "") });
      root.append(withTip(group, () => [`${name}, ${one.schedule}`, `predicted ${seconds(one.predicted_s)}`,
        `measured ${seconds(one.measured_s)}`]));
      top += step;
    });
  }
  show("model-bars", html("p", {}, "Seconds a step: predicted (outlined) and measured (filled), whiskers: quartiles."),
    root);
}

const modelName = (one) => `${one.parameters.model} on ${one.parameters.cluster}`;
function drawModels() {
  const models = data.models;
  drawSteps();
  show("model-table", table(["model", "cluster", "schedule", "r_f, r_b", "predicted step", "measured step", "error",
    "held-out loss", "status"], models.map((one) => [String(one.parameters.model), String(one.parameters.cluster),
    one.schedule, `${one.degree_forward}, ${one.degree_backward}`, seconds(one.predicted_s),
    seconds(one.measured_s) + (one.emulated ? ", EMULATED" : ""),
    one.predicted_s && one.measured_s ? percent(one.measured_s / one.predicted_s - 1) : "-",
    one.held_out_loss === null ? "-" : digits(one.held_out_loss, 5), one.reason || one.status])));
  const isNumber = (loss) => loss !== null;  // a loss of null diverged
  const curves = models.filter((one) => one.loss.length > 1), all = curves.flatMap((one) => one.loss).filter(isNumber);
  if (all.length === 0) return show("losses");
  const steps = Math.max(...curves.map((one) => one.loss.length));
  const chart = plane({ low: 1, high: steps, ticks: linearTicks(1, steps, 8).filter(Number.isInteger), text: String,
    title: "step" }, { low: least(all), high: most(all), text: (value) => digits(value, 4),
    title: "loss, nats a token" }, "losses");
  // Schedules of a model have the same losses, so colours stand for models.
  const names = [...new Set(curves.map(modelName))];
  const colour = (one) => PALETTE[names.indexOf(modelName(one)) % PALETTE.length];
  for (const one of curves)
    chart.root.append(withTip(svg("path", { class: "line", style: `stroke:${colour(one)}`,
      d: one.loss.map((loss, step) => (isNumber(loss)
        ? `${step && isNumber(one.loss[step - 1]) ? "L" : "M"}${chart.x(step + 1)},${chart.y(loss)}` : "")).join("") }),
    () => [`${modelName(one)}, ${one.schedule}`, one.loss.every(isNumber)
      ? `from ${digits(one.loss[0], 5)} to ${digits(one.loss.at(-1), 5)}`
      : `diverged at step ${one.loss.findIndex((loss) => !isNumber(loss)) + 1}`]));
  const legend = names.map((name, i) => swatch(PALETTE[i % PALETTE.length], name));
  show("losses", chart.root, html("div", { class: "legend" }, ...legend));
}

function drawPublished() {
  const of = (i, name) => published.get(i, name), ofTime = (i) => of(i, "figure").endsWith("_s");
  const number = (i, value) => (value === null ? "-" : (ofTime(i) ? seconds : (plain) => digits(plain, 4))(value));
  const off = (i) => (of(i, "published") && of(i, "computed") !== null
    ? percent(of(i, "computed") / of(i, "published") - 1) : "-");
  show("published-table", table(["table", "published", "computed", "difference", "figure", "of", ""],
    published.indices().map((i) => [of(i, "table"), number(i, of(i, "published")), number(i, of(i, "computed")), off(i),
      of(i, "figure").replace(/_s$/, "").replaceAll("_", " "), of(i, "what"), of(i, "reason")])));
}

// SLOW first, because a reader has to act on it.
const VERDICTS = ["SLOW", "AMBG", "FAST", "SAME"];
function drawPairs() {
  const several = new Set(data.pairs.map((one) => one.run)).size > 1;
  const name = (one) => (several ? `${one.case} (${runName(data.runs[one.run])})` : one.case);
  const place = (one) => (one.verdict ? VERDICTS.indexOf(one.verdict.verdict) : VERDICTS.length);
  const lines = [...data.pairs].sort((a, b) => place(a) - place(b)).map((one) => {
    const ratios = one.base_s.map((base, i) => one.head_s[i] / base), of = one.verdict;
    if (ratios.length === 0) return [name(one), "0", "-", "-", "-", "-", "-"];
    return [name(one), String(ratios.length), seconds(median(one.base_s)), seconds(median(one.head_s)),
      `${times(median(ratios))} (${times(quantile(ratios, 0.25))} to ${times(quantile(ratios, 0.75))})`,
      of ? html("b", { class: of.verdict }, of.verdict) : "not judged",
      of ? `${times(of.ratio)} (${times(of.least)} to ${times(of.most)})` : "-"];
  });
  show("pair-table", table(["case", "pairs", "base", "head", "head / base: median and middle half", "verdict",
    "judged ratio, 95 % interval"], lines));
}

function drawWarnings() {
  const { notes } = data.replays;
  const ofReplays = notes.length > 3 ? [{ level: "replay", text: `${notes.length} notes on replays`, cases: notes }]
    : notes.map((text) => ({ level: "replay", text, cases: [] }));
  const lines = [...data.warnings, ...ofReplays];
  show("warning-list", ...lines.map(({ level, text, cases }) => {
    const told = [html("b", { class: `level ${level}` }, level), ` ${text}`];
    if (cases.length === 0) return html("li", {}, ...told);
    return html("li", { class: "folded" }, html("details", {}, html("summary", {}, ...told),
      html("ul", {}, ...cases.map((one) => html("li", {}, one)))));
  }));
}

const fieldsText = (fields) => Object.entries(fields).map(([name, value]) => `${name} ${name.endsWith("bytes")
  ? bytes(value) : value}`).join(", ");

function drawRuns(has) {
  const shown = data.runs.filter((_, i) => runsShown.has(i));
  show("run-list", ...shown.map((run) => html("dl", {}, ...[["records", runName(run)],
    ["command", html("span", {}, ...unbroken(shellLine(run.argv)))], ["started", run.started], ["program", run.compiler && `moetune ${run.version || "of an unknown version"}, commit ` +
      `${run.git.commit ?? "unknown"}${run.git.dirty ? " and changes" : ""}, ${run.compiler}`],
    ["machine", fieldsText(run.machine)], ["conditions", fieldsText(run.conditions)], ["ranks", fieldsText(run.ranks)],
    ["cases", String(run.cases)]].filter(([, text]) => text).flatMap(([name, text]) =>
    [html("dt", {}, name), html("dd", {}, text)]))));
  const counts = new Map();
  for (const [kind, count] of data.others.flatMap(Object.entries)) counts.set(kind, (counts.get(kind) ?? 0) + count);
  const others = [...counts].map(([kind, count]) => `${count} of ${kind}`);
  byId("others").hidden = others.length === 0;
  byId("others").textContent = `Records that this page counts and does not show: ${others.join(", ")}.`;
  const drawn = Object.entries(has).some(([name, there]) => there && name !== "runs" && name !== "warnings");
  byId("nothing").hidden = drawn;
  byId("download-rows").hidden = rows.rows === 0;
  const link = (id, type, textOf) => byId(id).addEventListener("click", () => {
    byId(id).href = URL.createObjectURL(new Blob([textOf()], { type }));
  });
  link("download", "application/json", () => JSON.stringify(readData()));
  const names = ["layer", ...Object.keys(rows.columns).filter((name) => name !== "layer")];
  const cell = (value) => (/[",\n]/.test(String(value)) ? `"${String(value).replaceAll('"', '""')}"` : value ?? "");
  link("download-rows", "text/csv", () => [names.join(","), ...rows.indices().map((row) => names.map((name) =>
    cell(name === "layer" ? nameOf(row) : rows.get(row, name))).join(","))].join("\n"));
}
