// Replays a plan whose lanes slow each other, like moe/simulator/fluid_replay.h: between two events (a task starts or
// ends), the rates of all running tasks are constant.

const RESOURCES = ["compute", "inter", "intra", "copy"];
const LANE_THAT_SHARES = "gradient";  // it shares its network with another lane
const ROUNDING = 1e-12;  // relative: a task that has ended up to rounding does not stall others

const slowsItself = (structure, contention) => Boolean(contention) || structure.lanes.includes(LANE_THAT_SHARES);

/** Returns how many times as long a task takes beside running ones; `running` counts tasks by resource, itself too. */
function slowdownBeside(running, slowed, factors) {
  let product = RESOURCES[slowed] === "inter" || RESOURCES[slowed] === "intra" ? Math.max(1, running[slowed]) : 1;
  if (!factors) return product;
  running.forEach((count, by) => { if (by !== slowed) product *= factors[slowed][by] ** count; });
  return product;
}

/** Lanes with their tasks in order; each task's resource, and the tasks of other lanes that it waits for. */
function fluidLanes(structure, networks) {
  const queues = structure.lanes.map((name) => ({ name, tasks: [], at: 0, end: Infinity, slowdown: 1, resource: -1 }));
  structure.lane.forEach((lane, id) => {
    const network = networks[id], { name, tasks } = queues[lane];
    const used = network !== "none" ? network : name === "compute" ? "compute" : "copy";
    tasks.push({ id, resource: RESOURCES.indexOf(used) });
  });
  return queues;
}

/** Like replay(); `networks` are by task, `contention` is {factors, stalls}: [slowed][by], or null. */
function fluidReplay(structure, seconds, networks, contention) {
  const lanes = fluidLanes(structure, networks), size = structure.lane.length, { factors, stalls } = contention ?? {};
  const start = new Float64Array(size), end = new Float64Array(size).fill(Infinity), running = RESOURCES.map(() => 0);
  const busy = (lane) => lane.end !== Infinity;
  let now = 0;

  function stall(begun) {
    for (const other of lanes) {
      if (other === begun || !busy(other) || other.end - now <= ROUNDING * now) continue;
      begun.end += stalls[begun.resource][other.resource];
      other.end += stalls[other.resource][begun.resource] * other.slowdown;
    }
  }
  // Tasks that take no time end at once, do not slow others, and may let others start.
  function startReady() {
    for (let again = true; again;) {
      again = false;
      for (const lane of lanes)
        while (!busy(lane) && lane.at < lane.tasks.length &&
            structure.after[lane.tasks[lane.at].id].every((other) => end[other] <= now)) {
          const { id, resource } = lane.tasks[lane.at], takes = seconds[id];
          start[id] = now;
          if (takes > 0) {
            Object.assign(lane, { end: now + takes, slowdown: 1, resource });
            if (stalls) stall(lane);
            ++running[resource];
          } else {
            end[id] = now;
            ++lane.at;
            again = true;
          }
        }
    }
  }
  for (;;) {
    startReady();
    let next = Infinity;
    for (const lane of lanes.filter(busy)) {
      const slowdown = slowdownBeside(running, lane.resource, factors);
      if (slowdown !== lane.slowdown) lane.end = now + (lane.end - now) / lane.slowdown * slowdown;
      lane.slowdown = slowdown;
      next = Math.min(next, lane.end);
    }
    if (next === Infinity) return { start, end, makespan: now };
    now = next;
    for (const lane of lanes.filter((one) => one.end === now)) {
      end[lane.tasks[lane.at++].id] = now;
      --running[lane.resource];
      lane.end = Infinity;
    }
  }
}
