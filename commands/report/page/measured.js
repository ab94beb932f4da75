// Measured tasks beside simulated ones, both from the record of a run.

/** Returns lanes with the tasks of a table, with times from one of its pairs of columns. */
function lanesOfTasks(row, of, title, from, to) {
  const lanes = of.distinct("lane").sort((a, b) => a.localeCompare(b, "en", { numeric: true }));
  const tasks = of.indices().map((i) => ({ lane: lanes.indexOf(of.get(i, "lane")), kind: of.get(i, "kind"),
    layer: of.get(i, "layer"), phase: of.get(i, "phase"), chunk: of.get(i, "chunk"), chunks: of.get(i, "chunks"),
    start: of.get(i, from),
    end: of.get(i, to), critical: null, size: 0 }));
  const end = Math.max(...tasks.map((task) => task.end));
  return { title, row, lanes, tasks, end, total: end,
    split: Math.max(0, ...tasks.filter((task) => task.phase === "forward").map((task) => task.end)) };
}

const later = (off, more, less) => `${seconds(Math.abs(off))} ${off < 0 ? less : more}`;

/** A bar for each task from its expected to its measured end; early ends are faint. */
function differenceLanes(measuredOnes, simulated) {
  const tasks = measuredOnes.tasks.map((task, i) => {
    const expected = simulated.tasks[i], off = task.end - expected.end;
    const longer = task.end - task.start - (expected.end - expected.start);
    return { ...task, start: Math.min(task.end, expected.end), end: Math.max(task.end, expected.end),
      critical: off < 0 ? false : null, lines: [`ends ${later(off, "later", "earlier")} than simulated`,
        `takes ${later(longer, "more", "less")}`] };
  });
  return { ...measuredOnes, title: `${scheduleOf(measuredOnes.row)}, difference`, tasks,
    end: Math.max(measuredOnes.end, simulated.end),
    told: `measured ends ${later(measuredOnes.end - simulated.end, "later", "earlier")}` };
}

/** Returns the measured lanes, the simulated ones and their difference; only the measured ones without a prediction. */
function measuredLanes(row) {
  const { rank, of } = measuredTimeline.get(row), name = scheduleOf(row);
  const found = lanesOfTasks(row, of, `${name}, measured on rank ${rank}`, "start_s", "end_s");
  found.told = seconds(found.end);
  if (!of.has("predicted_end_s")) return [found];
  const simulated = lanesOfTasks(row, of, `${name}, simulated`, "predicted_start_s", "predicted_end_s");
  return [found, simulated, differenceLanes(found, simulated)];
}

/** Describes the timelines of these rows in words. */
function sourceOfTasks(list) {
  if (list.some((row) => measuredTimeline.has(row)))
    return "Measured tasks are of one pass, the median one, on the rank that took longest in it. Below them stands " +
      "what was simulated for them, and the difference: from where a task was to end to where it did, in full colour " +
      "where that is later.";
  return list.some((row) => measured(row) !== null)
    ? "Simulated: the records of these runs hold no measured tasks." : "Simulated: no run of this layer has a time.";
}
