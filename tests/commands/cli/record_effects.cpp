#include "tests/commands/cli/flag_effects.h"

namespace moe {
namespace {

using enum Effect;

Effects fit() {
  const std::string base = "--records records.jsonl";
  Effects e;
  add(e, changes, base, "--name mine; --json; --compute-from h100-8; --network-from h100-8");
  e.emplace("--records", FlagEffect{changes, base, "--records fewer.jsonl"});
  add(e, writes, base, "--out written");
  add(e, parsed, base, "--strict");
  return e;
}

Effects compare() {
  const std::string base = "base.jsonl head.jsonl --json", text = "base.jsonl head.jsonl";
  Effects e;
  e.emplace("BASE", FlagEffect{changes, base, "head.jsonl head.jsonl --json"});
  e.emplace("HEAD", FlagEffect{changes, base, "base.jsonl base.jsonl --json"});
  add(e, changes, base, "--filter ranks=8; --by op; --floor floor.jsonl");
  add(e, changes, text, "--markdown; --json");
  add(e, changes, "base.jsonl base.jsonl", "--all");
  add(e, refused, base, "--all; --markdown; --filter ranks; --filter nosuch=1; --by nosuch; --metric x");
  add(e, parsed, text, "--strict");
  return e;
}

Effects history() {
  Effects e;
  e.emplace("DIR", FlagEffect{changes, "deep --json", "deep/down --json"});
  add(e, changes, "deep --json", "--filter ranks=8; --by op");
  add(e, changes, "deep", "--json");
  add(e, refused, "deep", "--filter ranks; --by nosuch");
  add(e, parsed, "deep", "--plot a.svg");
  return e;
}

Effects of_export() {
  Effects e;
  e.emplace("FORMAT", FlagEffect{changes, "otava layers.jsonl", "otava-json layers.jsonl"});
  e.emplace("FILE", FlagEffect{changes, "csv testbed-b", "csv testbed-a"});
  add(e, changes, "csv testbed-b", "--per-element");
  add(e, changes, "google-benchmark base.jsonl", "--samples");
  add(e, changes, "plan layers.jsonl", "--schedule tutel");
  add(e, parsed, "plan layers.jsonl", "--only x");
  add(e, changes, "chakra plan.json", "--cluster testbed-b");
  add(e, refused, "chakra plan.json", "--only x; --schedule tutel");
  add(e, refused, "csv testbed-b", "--cluster testbed-b; --only x; --schedule tutel; --samples");
  add(e, refused, "otava layers.jsonl", "--per-element");
  add(e, writes, "csv testbed-b", "--out written");
  return e;
}

Effects of_import() {
  const std::string csv = "csv samples.csv --out o.jsonl --nodes 2", asked = "nccl-tests a --out o.jsonl";
  Effects e;
  e.emplace("FORMAT", FlagEffect{parsed, asked, "kineto a --out o.jsonl"});
  e.emplace("FILE", FlagEffect{parsed, asked, "nccl-tests b --out o.jsonl"});
  add(e, parsed, asked,
      "--cluster mine; --op alltoall; --network intra; --nodes 2; --ranks 8; --ranks-per-node 4; --in-place; "
      "--overwrite");
  add(e, parsed, "kineto a --out o.jsonl", "--map m.csv");
  add(e, parsed, "nsys a --out o.jsonl", "--dtype bfloat16");
  add(e, parsed, "deepep a --out o.jsonl", "--experts 256");
  add(e, refused, csv,
      "--op alltoall; --network intra; --ranks 8; --in-place; --map m.csv; --dtype bfloat16; --experts 256");
  add(e, refused, "nccl-tests a", "--map m.csv");
  add(e, writes, "csv-profile profile.csv", "--out written");
  add(e, refused, "csv-profile profile.csv --out written", "--cluster mine; --nodes 2");
  return e;
}

Effects report() {
  Effects e;
  e.emplace("RECORDS", FlagEffect{changes, "records.jsonl", "fewer.jsonl"});
  add(e, parsed, "a", "--cluster testbed-a; --timelines 2");
  add(e, writes, "records.jsonl", "--out written");
  add(e, refused, "records.jsonl", "--timelines -1");
  return e;
}

}  // namespace

EffectsOfVerbs effects_of_records() {
  return {{"fit", fit()},          {"compare", compare()},  {"history", history()},
          {"export", of_export()}, {"import", of_import()}, {"report", report()}};
}

}  // namespace moe
