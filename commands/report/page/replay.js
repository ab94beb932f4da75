// Replays a plan like moe/simulator/simulator.h: a lane runs its tasks in order, each as soon as its inputs exist.
// fluid.js replays lanes that slow each other.

/** Returns the start and end of each task, and the last end. `seconds` are by task. */
function replay(structure, seconds) {
  const { lanes, lane, after } = structure;
  const laneEnd = new Float64Array(lanes.length);
  const start = new Float64Array(lane.length), end = new Float64Array(lane.length);
  for (let i = 0; i < lane.length; ++i) {
    let begin = laneEnd[lane[i]];
    for (const other of after[i]) if (end[other] > begin) begin = end[other];
    start[i] = begin;
    end[i] = laneEnd[lane[i]] = begin + seconds[i];
  }
  return { start, end, makespan: Math.max(0, ...laneEnd) };
}

/** Returns the tasks of one chain without a gap, from the beginning to the last end. */
function criticalPath(structure, times) {
  const { lane, after } = structure, before = [], last = [];
  for (let i = 0; i < lane.length; ++i) {
    before.push(last[lane[i]] ?? -1);
    last[lane[i]] = i;
  }
  const path = new Set();
  let task = times.end.indexOf(times.makespan);
  while (task >= 0 && !path.has(task)) {
    path.add(task);
    const others = before[task] < 0 ? after[task] : [before[task], ...after[task]];
    task = others.find((other) => times.end[other] === times.start[task]) ?? -1;
  }
  return path;
}

/** How sliders change times: speeds divide the part that grows with size, `alpha` multiplies start-up times. */
const AS_RECORDED = Object.freeze({ inter: 1, intra: 1, compute: 1, alpha: 1, batch: 1 });

/** Seconds of a price [work, size, growing]; a work is [kind, phase, network, unit, start-up]. */
function priceSeconds([work, , growing], works, scale) {
  const [kind, , network, , starts] = works[work];
  const speed = network === "none" ? scale.compute : scale[network];
  const amount = kind.endsWith("gradient") ? 1 : scale.batch;
  return starts * (network === "none" ? 1 : scale.alpha) + growing * amount / speed;
}
