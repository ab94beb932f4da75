// The records, as tables of columns.

/** Returns the page's data with its tables unpacked. */
const readData = () => unpackedTables(document.getElementById("data").textContent);

/** The runs to show: those in the address, "?runs=0,2", else the last one of each file. */
function chosenRuns(runs) {
  const named = new URLSearchParams(globalThis.location?.search ?? "").get("runs")?.split(",").map(Number) ?? [];
  const known = named.filter((run) => run in runs);
  return new Set(known.length > 0 ? known : runs.flatMap(({ last }, run) => (last ? [run] : [])));
}

/** Returns the page's data for some of its runs. Layers and rows are numbered anew. */
function ofRuns(all, chosen) {
  if (all.runs.every((_, run) => chosen.has(run))) return all;
  const kept = ({ rows, columns }, keeps) => {
    const at = Array.from({ length: rows }, (_, row) => row).filter(keeps);
    return { at, place: new Map(at.map((row, i) => [row, i])), table: { rows: at.length,
      columns: Object.fromEntries(Object.entries(columns).map(([name, cells]) => [name, at.map((i) => cells[i])])) } };
  };
  const has = (one) => chosen.has(one.run);
  const ofRun = (table) => kept(table, (row) => chosen.has(table.columns.run[row])).table;
  const layers = kept(all.layers, (layer) => chosen.has(all.layers.columns.run[layer]));
  const rows = kept(all.rows, (row) => layers.place.has(all.rows.columns.layer[row]));
  if (rows.table.rows > 0) rows.table.columns.layer = rows.table.columns.layer.map((layer) => layers.place.get(layer));
  const replays = all.replays.layers.filter((one) => layers.place.has(one.layer)).map((one) => ({ ...one,
    layer: layers.place.get(one.layer),
    schedules: one.schedules.map((schedule) => ({ ...schedule, row: rows.place.get(schedule.row) })) }));
  return { ...all, layers: layers.table, rows: rows.table, operations: ofRun(all.operations),
    published: ofRun(all.published), answers: all.answers.filter(has), models: all.models.filter(has),
    pairs: all.pairs.filter(has), fits: all.fits.filter(has), warnings: all.warnings.filter(has),
    timelines: all.timelines.filter((one) => rows.place.has(one.row))
      .map((one) => ({ ...one, row: rows.place.get(one.row) })),
    others: all.others.map((one, run) => (chosen.has(run) ? one : {})),
    replays: { ...all.replays, layers: replays } };
}

const whole = readData(), runsShown = chosenRuns(whole.runs);
const data = ofRuns(whole, runsShown);
const layers = new Table(data.layers), rows = new Table(data.rows), operations = new Table(data.operations);
const published = new Table(data.published);

/** The successful rows of each layer. */
const rowsOfLayer = Array.from({ length: layers.rows }, () => []);
for (const row of rows.indices()) if (rows.get(row, "status") === "ok") rowsOfLayer[rows.get(row, "layer")].push(row);

const predicted = (row) => rows.get(row, "predicted_total_s");
const planned = (row) => rows.get(row, "planned_total_s");
const measured = (row) => rows.get(row, "measured_total_s");
const scheduleOf = (row) => rows.get(row, "schedule");

/** Returns measured times if all rows have them, else plans, else predictions, so that only times of one kind are
 * compared. A plan may round rows differently than the run of its layer. */
function timesOf(list) {
  return [measured, planned].find((time) => list.every((row) => time(row) !== null)) ?? predicted;
}

/** Returns the rows of a layer, the fastest first. */
function ranked(layer) {
  const list = rowsOfLayer[layer].filter((row) => (planned(row) ?? predicted(row) ?? measured(row)) !== null);
  const time = timesOf(list);
  return { time, list: list.filter((row) => time(row) !== null).sort((a, b) => time(a) - time(b)) };
}

/** Returns the recorded answer for a layer, as `tune` printed it; a grid's answer has no layer. */
const answerOf = (layer) => data.answers.find((one) => one.run === layers.get(layer, "run") &&
  one.layer === layers.get(layer, "layer"));

/** Returns the prediction that corresponds to the times by which a layer's rows are ranked. */
const foretold = (row, time) => (time === planned ? planned(row) : predicted(row));

const CLEARLY = 0.01;  // relative: smaller differences between runs do not decide
/** Returns whether a row ran faster than another by more than their passes vary, as in `tune`. */
function ranClearlyFaster(row, than) {
  const high = rows.get(row, "likely_high_s"), low = rows.get(than, "likely_low_s");
  return high !== null && low !== null && high < low && measured(row) < measured(than) * (1 - CLEARLY);
}
/** Returns the row to use: predicted fastest, unless another one ran clearly faster. If there are too few passes to
 * tell, it is the first by prediction that ran within 1 % of the fastest. */
function recommendedOf({ time, list }) {
  if (!list.every((row) => foretold(row, time) !== null)) return list[0];
  const order = [...list].sort((a, b) => foretold(a, time) - foretold(b, time));
  if (time === measured && !list.every((row) => rows.get(row, "likely_low_s") !== null))
    return order.find((row) => measured(row) * (1 - CLEARLY) <= measured(list[0]));
  return order.reduce((best, row) => (ranClearlyFaster(row, best) ? row : best));
}

const median = (values) => quantile(values, 0.5);
function quantile(values, share) {
  const sorted = [...values].sort((a, b) => a - b), at = share * (sorted.length - 1), low = Math.floor(at);
  return sorted[low] + (at - low) * (sorted[Math.min(low + 1, sorted.length - 1)] - sorted[low]);
}
// least and most take any number of values, too many for the arguments of a call.
const least = (values) => values.reduce((a, b) => Math.min(a, b));
const most = (values) => values.reduce((a, b) => Math.max(a, b));
const mean = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;

/** The data that can replay a layer, if the page has it. */
const replayOf = new Map(data.replays.layers.map((one) => [one.layer, one]));
const recordedTimeline = new Map(data.timelines.filter((one) => !("rank" in one))
  .map(({ row, tasks }) => [row, new Table(tasks)]));
const measuredTimeline = new Map(data.timelines.filter((one) => "rank" in one)
  .map(({ row, rank, tasks }) => [row, { rank, of: new Table(tasks) }]));
