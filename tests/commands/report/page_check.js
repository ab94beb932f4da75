// usage: node page_check.js PAGE. Runs the scripts of a page on a document that swallows what is drawn, all but the
// start, and prints its data as it unpacks them, what it says of its timelines, and those of the first layer.
const fs = require("fs");
const vm = require("vm");

/** Takes every property and call, and is a number where one is asked for; its own properties are found again. */
function anyElement() {
  const own = { dataset: {}, style: {}, [Symbol.toPrimitive]: () => 1 };
  return new Proxy(() => {}, { get: (_, name) => (own[name] ??= anyElement()), apply: anyElement,
    set: (_, name, value) => { own[name] = value; return true; } });
}

const page = fs.readFileSync(process.argv[2], "utf8");
const between = (begin, end) => page.slice(page.indexOf(begin) + begin.length, page.indexOf(end, page.indexOf(begin)));
const elements = new Map([["data", { textContent: between('id="data">', "</script>") }]]);
global.document = new Proxy(anyElement(), { get: (any, name) => (name !== "getElementById" ? any[name]
  : (id) => elements.get(id) ?? elements.set(id, anyElement()).get(id)) });
global.matchMedia = anyElement;
global.addEventListener = anyElement;

const scripts = between("<script>", "</script>"), start = "\nstart();\n";
if (!scripts.includes(start)) throw new Error("found no start of the page");
const found = vm.runInThisContext(`${scripts.replace(start, "\n")};
  ({ data, state, groups: () => groupsOfLayer(), source: () => replaySource(replayOf.get(state.layer)) })`);
const drawn = found.data.layers.rows > 0 ? { groups: found.groups(), source: found.source() } : {};
found.state.scale.inter = 2;  // the slider of the network between nodes
const changed = found.data.layers.rows > 0 ? found.groups().map((group) => group.title) : [];
console.log(JSON.stringify({ data: found.data, ...drawn, changed }));
