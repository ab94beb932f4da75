// The reader's choices, and the redrawing when they change.

const state = { layer: 0, scale: { ...AS_RECORDED }, degrees: new Map(), view: null, all: 1 };

function redrawReplays() {
  drawTimelines();
  drawDegrees();
}

const SHOWN_SHAPE = ["layers", "micro_batches", "batch", "seq", "model_dim", "hidden",
  "shared_hidden", "heads", "experts", "top_k", "node_limit", "capacity_factor", "ffn"];
function redrawLayer() {
  byId("layer").value = String(state.layer);
  byId("shape").textContent = [["cluster", layers.get(state.layer, "cluster")], ...SHOWN_SHAPE.map((name) =>
    [name, layers.get(state.layer, name)])].filter(([, value]) => value !== null)
    .map(([name, value]) => `${name.replaceAll("_", " ")} ${value}`).join(", ");
  drawAnswer();
  drawBars();
  fillDegreeSchedules();
  redrawReplays();
  drawMemory();
}

function choose(layer) {
  state.layer = layer;
  state.degrees.clear();
  state.view = null;
  redrawLayer();
}

function startPicker() {
  const option = (layer) => html("option", { value: layer }, layers.get(layer, "layer") +
    (runsShown.size > 1 ? ` | ${runName(data.runs[layers.get(layer, "run")])}` : ""));
  const withReplay = layers.indices().filter((layer) => replayOf.has(layer));
  const others = layers.indices().filter((layer) => !replayOf.has(layer));
  const order = [...withReplay, ...others];
  if (others.length === 0) show("layer", ...order.map(option));
  else show("layer", html("optgroup", { label: "with timelines" }, ...withReplay.map(option)),
    html("optgroup", { label: "others" }, ...others.map(option)));
  byId("layer").addEventListener("change", (event) => choose(Number(event.target.value)));
  const step = (by) => choose(order[(order.indexOf(state.layer) + by + order.length) % order.length]);
  byId("previous").addEventListener("click", () => step(-1));
  byId("next").addEventListener("click", () => step(1));
  state.layer = order[0] ?? 0;
}

const summaries = data.answers.filter((one) => one.layer === "");
const drawSummary = () => show("summary-parts", ...summaries.map(({ parts }) => html("div", {},
  ...parts.flatMap(({ items: [first, ...others], table: cells }) => [html("p", { class: "verdict" }, first ?? ""),
    table(cells[0], cells.slice(1)), ...others.map((item) => html("p", { class: "item" }, item))]))));

/** Puts the main subject of the records first: trained models, or a grid of layers, whose sections come before the
 * picker of one layer. */
function orderSections() {
  const picker = byId("picker");
  if (layers.rows > 1) picker.before(byId("summary"), byId("winners"));
  if (data.models.length > 0) byId("summary").before(byId("models"));
}

const runName = ({ file, number, last }) => (last && number === 1 ? file : `${file}, run ${number}`);
/** A box for each run, if a file has several: the page is drawn again for the chosen ones. */
function startRuns() {
  const all = whole.runs, several = all.some(({ last }) => !last);
  byId("run-picker").hidden = !several;
  if (!several) return;
  const boxes = all.map((run, i) => html("input", { type: "checkbox", value: i, checked: runsShown.has(i),
    onchange: () => {
      const chosen = boxes.filter((box) => box.checked).map((box) => box.value);
      if (chosen.length > 0) location.search = `?runs=${chosen.join(",")}`;
    } }));
  byId("run-picker").firstElementChild.textContent =
    `${runsShown.size} of ${count(all.length, "run")} shown: choose`;
  show("run-choices", ...all.map((run, i) => html("label", {}, boxes[i],
    ` ${runName(run)}, ${run.started}, ${count(run.cases, "case")}: ${shellLine(run.argv)}`)));
}

/** Hides sections without data in these records, and lists the others. */
function startSections() {
  const has = { summary: summaries.length > 0, layer: layers.rows > 0, layers: layers.rows > 1,
    operations: operations.rows > 0, measured: bothTimes.length > 0, memory: replayOf.size > 0, models: data.models.length > 0,
    pairs: data.pairs.length > 0, published: published.rows > 0,
    warnings: data.warnings.length + data.replays.notes.length > 0, runs: true };
  orderSections();
  byId("picker").hidden = layers.rows === 0;
  for (const section of document.querySelectorAll("main > section")) {
    section.hidden = !has[section.dataset.of];
    section.prepend(html("h2", {}, section.dataset.title));
    if (!section.hidden) byId("contents").append(html("a", { href: `#${section.id}` }, section.dataset.title));
  }
  return has;
}

function startHead() {
  const shown = data.runs.filter((_, i) => runsShown.has(i)), files = shown.map(runName).join(", ");
  document.title = `moetune: ${files}`;
  const held = [[layers.rows, "layer"], [rows.rows, "schedule of a layer", "schedules of layers"],
    [operations.rows, "operation"], [data.models.length, "model"], [published.rows, "published figure"]];
  byId("about").textContent = `${data.made_by}. ${held.filter(([number]) => number > 0).map(([number, one, many]) =>
    (many && number !== 1 ? `${number} ${many}` : count(number, one))).join(", ")}. Records: ${files}.`;
  const emulated = shown.filter((run) => run.emulated).map(runName);
  byId("emulated").hidden = emulated.length === 0;
  byId("emulated").textContent = `EMULATED: the measured times of ${emulated.join(", ")} are of threads that are ` +
    "paced by a cluster's model. They test order, executor and prediction. They are no times of that hardware.";
}

// Content below the first screen is drawn after that screen was painted.
function drawBelow(has) {
  if (has.layers) startWinners(), drawWinners();
  if (has.operations) startOperations(), drawOperations();
  if (has.measured) drawAccuracy();
  if (has.models) drawModels();
  if (has.pairs) drawPairs();
  drawWarnings();
  if (has.published) drawPublished();
  drawRuns(has);
  document.body.dataset.ready = "yes";
}

function start() {
  startHead();
  startRuns();
  startPatterns();
  const has = startSections();
  if (has.layer) {
    startPicker();
    startSliders();
    startTimelines();
    startDegrees();
    redrawLayer();
  } else {
    byId("memory").hidden = true;
  }
  if (has.summary) drawSummary();
  setTimeout(() => drawBelow(has), 0);
  addEventListener("beforeprint", () => {
    for (const folded of document.querySelectorAll("details")) folded.open = true;
  });
  let waiting = 0;
  addEventListener("resize", () => {
    clearTimeout(waiting);
    waiting = setTimeout(() => {
      if (has.layer) redrawLayer();
      if (has.layers) drawWinners();
      if (has.models) drawModels();
    }, 120);
  });
}
start();
