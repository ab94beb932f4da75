// usage: node table_check.js TABLE_JS < DATA. Prints the data of a page with its tables as the page unpacks them.
const fs = require("fs");
const vm = require("vm");

const unpackedTables = vm.runInThisContext(`${fs.readFileSync(process.argv[2], "utf8")}; unpackedTables`);
process.stdout.write(JSON.stringify(unpackedTables(fs.readFileSync(0, "utf8"))));
