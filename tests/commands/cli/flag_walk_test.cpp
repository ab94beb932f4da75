// Walks every flag of every verb, as the command line itself lists them, and shows that it does what the table says: no
// flag is taken in silence and does nothing.
#include <algorithm>
#include <filesystem>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <fstream>
#include <gtest/gtest.h>
#include <iterator>
#include <sstream>
#include <unistd.h>

#include "commands/cli/launch.h"
#include "commands/cli/verbs.h"
#include "commands/doctor/doctor.h"
#include "commands/exchange/exchange.h"
#include "commands/plannerbench.h"
#include "commands/regress/ab.h"
#include "commands/regress/compare.h"
#include "commands/regress/history.h"
#include "commands/regress/self_test.h"
#include "commands/report/report.h"
#include "commands/reproduce/reproduce.h"
#include "layerbench/layerbench.h"
#include "microbench/microbench.h"
#include "modelbench/modelbench.h"
#include "moe/base/json.h"
#include "tests/commands/cli/flag_effects.h"
#include "tests/commands/cli/program.h"
#include "tuner/fit.h"
#include "tuner/tune.h"

namespace moe::cli {
namespace {

using Words = std::vector<std::string>;

Words words_of(const std::string& text) {
  std::istringstream in(text);
  return {std::istream_iterator<std::string>(in), {}};
}

std::string name_of(const CLI::Option& option) {
  return option.get_lnames().empty() ? option.get_name() : "--" + option.get_lnames().front();
}

std::map<std::string, std::vector<std::string>> flags_of_verbs() {
  CLI::App app;
  Command command;
  const auto calls = add_verbs(app, command);
  std::map<std::string, std::vector<std::string>> flags;
  for (const CLI::App* verb : app.get_subcommands(nullptr))
    for (const CLI::Option* option : verb->get_options())
      if (option != verb->get_help_ptr()) flags[verb->get_name()].push_back(name_of(*option));
  return flags;
}

std::string shown(const std::string& value) { return value; }
template <class T>
std::string shown(const T& value) {
  if constexpr (requires { value.has_value(); })
    return value ? shown(*value) : "-";
  else if constexpr (std::is_enum_v<T>)
    return fmt::format("{}", static_cast<int>(value));
  else
    return fmt::format("{}", value);
}
template <class... T>
std::string all_of(const T&... values) {
  std::string text;
  ((text += shown(values) + " | "), ...);
  return text;
}

std::string of(const commands::Selection& s) {
  const commands::LayerFlags& l = s.layer;
  const DegreeChoice& d = s.degrees;
  std::string fields;
  for_each_layer_field([&](const auto& field) { fields += all_of(l.fields.get(field.member)); });
  return fields + all_of(s.cluster, s.grid, s.layer_file, fmt::format("{}", fmt::join(s.schedules, ",")), d.forward,
                         d.backward, d.micro_op_bytes, d.min_chunk_bytes, s.nearest, l.rounding, l.placement, l.dp,
                         l.cp, l.cp_exchange, l.mp, l.ep, l.esp, l.pp, l.zero, l.recompute, l.offload);
}

std::string of(const commands::TraceFlags& t) { return all_of(t.file, t.layers, t.micro_batches); }

std::string of(const commands::ModelFlags& m) {
  return all_of(m.model, m.layers, m.micro_batches, m.pipeline, m.virtual_stages, m.framework);
}

std::string of(const commands::RunOptions& r) { return all_of(r.timeout_s, r.device, r.attention, r.threads); }

std::string joined(const std::vector<std::string>& words) { return fmt::format("{}", fmt::join(words, ",")); }

std::string of(const tuner::TuneOptions& t) {
  return of(t.selection) + of(t.model) + of(static_cast<const commands::RunOptions&>(t)) + of(t.trace) +
         all_of(t.verify, t.measured_layers, t.strategy_layers, t.measure_degrees, t.iterations, t.seed, t.out, t.json,
                t.run_all, t.strict, t.top, t.any_shape, t.global_batch);
}

std::string of(const microbench::MicrobenchOptions& m) {
  return of(static_cast<const commands::RunOptions&>(m)) +
         all_of(m.cluster, joined(m.ops), m.repetitions, m.min_bytes, m.max_bytes, m.step_bytes, m.step_factor,
                m.iterations, m.warm_ups, m.check, m.dtype, m.modules, m.out, m.kernels, m.json);
}

std::string of(const commands::ServeFlags& s) {
  return joined(s.variants) + all_of(s.serve, s.routing, s.skew, s.correlation, s.drift, s.batches, s.path, s.pack,
                                     s.swap_gb_per_s, s.write_profile);
}

std::string of(const layerbench::LayerbenchOptions& l) {
  return of(l.serve) + of(l.selection) + of(l.stack) + of(static_cast<const commands::RunOptions&>(l)) + of(l.trace) +
         joined(l.only) +
         all_of(l.layers, l.iterations, l.seed, l.out, l.workload, l.dump, l.tasks, l.check_only, l.json, l.predict,
                l.drawn, l.slow, l.graphs, l.profile, l.plan, l.record_routing, l.against);
}

std::string of(const modelbench::ModelbenchOptions& b) {
  return of(b.selection) + of(b.model) + of(static_cast<const commands::RunOptions&>(b)) + of(b.trace) +
         all_of(b.text, b.markov_order, b.steps, b.optimizer, b.learning_rate, b.momentum, b.weight_decay, b.clip_norm,
                b.warm_up, b.held_out, b.checkpoint, b.checkpoint_every, b.check_only, b.online_packing, b.dump,
                b.peak_flops, b.weights, b.save_weights, b.plan, b.save_plan, b.record_routing, b.seed, b.out, b.tasks,
                b.json);
}

std::string of(const LaunchOptions& o) { return all_of(o.ranks, joined(o.command)); }

std::string of(const tuner::FitOptions& o) { return joined(o.records) + all_of(o.name, o.out, o.json, o.strict); }

std::string of(const reproduce::ReproduceOptions& o) {
  return all_of(o.table, o.assume, o.measure, o.records, o.runs, o.audit, o.all, o.write, o.out, o.json);
}

std::string of(const doctor::DoctorOptions& o) { return all_of(o.all, o.strict, o.json); }

std::string of(const commands::PlannerbenchOptions& o) { return shown(o.json); }

template <class Options>
std::string of_gate(const Options& o) {
  return joined(o.command) +
         all_of(o.base, o.cases, o.launcher, o.metric, o.unit, o.delta_percent, o.timeout_s, o.seed, o.out, o.json);
}
std::string of(const regress::AbOptions& o) {
  return of_gate(o) + all_of(o.head, o.base_flags, o.head_flags, o.floor, o.strict, o.markdown);
}
std::string of(const regress::SelfTestOptions& o) { return of_gate(o) + all_of(o.gates, o.resamples, o.simulate); }

std::string of(const regress::CompareOptions& o) { return shown(o.strict); }
std::string of(const regress::HistoryOptions& o) { return o.plot; }
std::string of(const report::ReportOptions& o) { return all_of(o.cluster, o.timelines); }
std::string of(const exchange::ExportOptions& o) { return o.only; }
std::string of(const exchange::ImportOptions& o) {
  return all_of(o.format, joined(o.files), o.cluster, o.op, o.network, o.nodes, o.ranks, o.ranks_per_node, o.in_place,
                o.map, o.dtype, o.experts);
}

// The options of the first of these types that are the verb's.
template <class... Options>
std::string of_any(const Command& c) {
  std::string text;
  const auto add = [&]<class One>(const One*) {
    if (c.call.options.type() == typeid(std::shared_ptr<One>)) text += of(c.options<One>());
  };
  (add(static_cast<const Options*>(nullptr)), ...);
  return text;
}

// What the verb is called with, but for the words themselves.
std::string parsed(const std::string& verb, const std::string& text) {
  const Words words = words_of(text);
  std::vector<const char*> argv{"moetune", verb.c_str()};
  for (const std::string& word : words) argv.push_back(word.c_str());
  const auto c = parse_command_line(static_cast<int>(argv.size()), argv.data());
  if (!c) return "help";
  const RanksFlags& r = c->ranks;
  return c->verb + shown(c->log) + shown(c->wide) + shown(c->max_input) +
         (c->call.invocation != nullptr ? shown(c->call.invocation->overwrite) : "") +
         all_of(r.backend, r.rank, r.ranks, r.timeout_s, r.rendezvous, r.ranks_per_node, r.min_ctas, r.max_ctas,
                r.implicit_launch_order) +
         of_any<tuner::TuneOptions, microbench::MicrobenchOptions, layerbench::LayerbenchOptions,
                modelbench::ModelbenchOptions, LaunchOptions, tuner::FitOptions, reproduce::ReproduceOptions,
                doctor::DoctorOptions, commands::PlannerbenchOptions, regress::AbOptions, regress::SelfTestOptions,
                regress::CompareOptions, regress::HistoryOptions, report::ReportOptions, exchange::ExportOptions,
                exchange::ImportOptions>(*c);
}

// The document without what is no result: times of this machine, names of files.
Json document(const std::string& text) {
  Json json = Json::parse(text, nullptr, false);
  if (json.is_discarded()) return text;
  if (json.is_object()) json.erase("records");
  return json;
}

class FlagWalk : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = testing::TempDir() + fmt::format("moetune-walk-{}", getpid());
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
    file("few.toml", grid("few", "1024"));
    file("other.toml", grid("other", "2048"));
    file("layer.toml", "schema = 1\nname = \"l\"\nbatch = 2\n");
    const std::string records = contents(MOETUNE_SOURCE_DIR "/tests/plots/data/microbench.jsonl");
    file("records.jsonl", records);
    file("fewer.jsonl", without(records, "allreduce"));
    file("layers.jsonl", contents(MOETUNE_SOURCE_DIR "/tests/plots/data/layer.jsonl"));
    file("samples.csv", "op,network,ranks,bytes,seconds\nalltoall,inter,2,1024,1e-4\n");
    run("export", "csv testbed-b --out profile.csv");
    run("export", "plan layers.jsonl --schedule fsmoe --out plan.json");
    std::filesystem::create_directories(folder_ + "/deep/down");
    for (const char* name : {"head.jsonl", "deep/a.jsonl"}) file(name, with_samples(records, 0.9));
    for (const char* name : {"base.jsonl", "deep/down/b.jsonl"}) file(name, with_samples(records, 1));
    file("floor.jsonl",
         contents(folder_ + "/base.jsonl").substr(0, contents(folder_ + "/base.jsonl").find('\n') + 1) +
             R"({"kind":"case","key":"self-test/floor","status":"ok","parameters":{"fingerprint":""},"backend":"none",)"
             R"("emulated":false,"dilation":1,"samples":{},"summary":{"between_sessions":0.01},"prediction":{}})"
             "\n");
    const std::string cluster = contents(MOETUNE_SOURCE_DIR "/configs/clusters/testbed-b.toml");
    std::string half = cluster;
    half.replace(half.find("nodes = 8"), 9, "nodes = 4");
    file("half.toml", half);
    std::string more = cluster;
    for (const char* name : {"gate:switch", "order:gshard"})
      for (const char* phase : {"forward", "backward"})
        more += fmt::format("\n[[module]]\nname = \"{}\"\nphase = \"{}\"\nalpha_s = 1e-3\nbeta_s_per_{} = 1e-12\n",
                            name, phase, std::string_view(name).starts_with("gate") ? "flop" : "byte");
    more +=
        "\n[[comm]]\nop = \"alltoall\"\nnetwork = \"inter\"\nranks = 8\nalgorithm = \"2dh\"\nalpha_s = 1e-3\n"
        "beta_s_per_byte = 1e-9\n[[compute]]\nop = \"gemm\"\ndtype = \"bfloat16\"\nalpha_s = 1e-4\n"
        "beta_s_per_flop = 1e-14\n";
    for (const char* op : {"allgather", "reducescatter"})
      more += fmt::format(
          "[[comm]]\nop = \"{}\"\nnetwork = \"inter\"\nranks = 4\nalpha_s = 1e-3\nbeta_s_per_byte = 1e-9\n", op);
    more += "[[compute]]\nop = \"host_copy\"\nalpha_s = 1e-5\nbeta_s_per_byte = 1e-10\n";
    file("more.toml", more);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  static std::string contents(const std::string& path) {
    std::ifstream in(path);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  static std::string without(const std::string& lines, const std::string& word) {
    std::istringstream in(lines);
    std::string kept;
    for (std::string line; std::getline(in, line);)
      if (line.find(word) == std::string::npos) kept += line + "\n";
    return kept;
  }
  // As many measured cases as there are lines, each of `seconds`.
  static std::string with_samples(std::string lines, double seconds) {
    const std::string none = "\"samples\":{}", some = fmt::format("\"samples\":{{\"seconds\":[[{}]]}}", seconds);
    for (size_t at = 0; (at = lines.find(none, at)) != std::string::npos; at += some.size())
      lines.replace(at, none.size(), some);
    return lines;
  }
  static std::string grid(const std::string& name, const std::string& dims) {
    return fmt::format(
        "schema = 1\nname = \"{}\"\nsource = \"made up\"\ncluster = \"testbed-b\"\ncapacity_rounding = \"exact\"\n"
        "[layers]\nbatch = [1, 4]\nheads = 16\nseq = 512\nmodel_dim = {}\nhidden_scale = 4\ncapacity_factor = 1.2\n"
        "ffn = \"simple\"\ntop_k = 1\nexperts = \"nodes\"\n",
        name, dims);
  }
  void file(const std::string& name, const std::string& text) { std::ofstream(folder_ + "/" + name) << text; }

  Printed run(const std::string& verb, const std::string& words) {
    return run_program(MOETUNE_PROGRAM, words_of(verb + " " + words), folder_);
  }

  // Why the effect is another; empty: it is as the table says.
  std::string fault(const std::string& verb, const std::string& flag, const FlagEffect& e) {
    if (e.effect == Effect::parsed)
      return parsed(verb, e.without) == parsed(verb, e.with) ? "the verb is called alike" : "";
    std::filesystem::remove(folder_ + "/written");
    const Printed with = run(verb, e.with);
    if (e.effect == Effect::refused) {
      const std::string named = flag.substr(std::min<size_t>(2, flag.find_first_not_of('-')));
      if (with.exit_code != 2) return fmt::format("exit code {}", with.exit_code);
      if (std::ranges::count(with.err, '\n') != 1) return "not one line: " + with.err;
      return with.err.find(named) == std::string::npos ? "the line names another flag: " + with.err : "";
    }
    if (with.exit_code != 0) return with.err;
    if (e.effect == Effect::writes) return std::filesystem::exists(folder_ + "/written") ? "" : "nothing is written";
    const Printed without = run(verb, e.without);
    Json a = document(without.out), b = document(with.out);
    if (a == b) return "prints the same";
    if (e.effect == Effect::changes) return "";
    for (Json* json : {&a, &b})
      if (json->is_object()) json->erase("layer");
    return a == b ? "" : "more than the layer's description is different";
  }

  std::string folder_;
};

TEST_F(FlagWalk, EveryFlagChangesSomethingOrIsRefused) {
  const auto effects = flag_effects();
  int walked = 0;
  for (const auto& [verb, flags] : flags_of_verbs()) {
    const auto table = effects.find(verb);
    ASSERT_NE(table, effects.end()) << verb;
    for (const std::string& flag : flags) {
      EXPECT_GT(table->second.count(flag), 0U) << verb << " " << flag << ": the table does not say what it does";
      const auto [begin, end] = table->second.equal_range(flag);
      for (auto row = begin; row != end; ++row, ++walked)
        EXPECT_EQ(fault(verb, flag, row->second), "") << verb << " " << row->second.with;
    }
  }
  fmt::print("{} uses of flags\n", walked);
}

TEST_F(FlagWalk, TheTableHasNoFlagThatIsNone) {
  const auto flags = flags_of_verbs();
  for (const auto& [verb, table] : flag_effects()) {
    ASSERT_TRUE(flags.contains(verb)) << verb;
    for (const auto& [flag, effect] : table)
      EXPECT_EQ(std::ranges::count(flags.at(verb), flag), 1) << verb << " " << flag;
  }
}

}  // namespace
}  // namespace moe::cli
