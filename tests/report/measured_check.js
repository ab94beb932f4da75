// usage: node measured_check.js PAGE_FOLDER < DATA. Prints what the page draws of each measured timeline, and says.
const fs = require("fs");
const vm = require("vm");

const page = (name) => fs.readFileSync(`${process.argv[2]}/${name}.js`, "utf8");
global.document = { getElementById: () => ({ textContent: fs.readFileSync(0, "utf8") }) };
const show = "const seconds = (value) => `${value} s`;";  // exact, unlike the page's
const scripts = [page("table"), page("data"), show, page("measured")].join("\n");
const { measuredTimeline, measuredLanes, sourceOfTasks, rows } = vm.runInThisContext(
  `${scripts}; ({ measuredTimeline, measuredLanes, sourceOfTasks, rows })`);
console.log(JSON.stringify({ source: sourceOfTasks(rows.indices()),
  groups: [...measuredTimeline.keys()].map((row) => measuredLanes(row)) }));
