#include "commands/cli/flag_kinds.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "commands/cli/verbs.h"
#include "commands/shared/frameworks.h"
#include "commands/shared/plan_file.h"
#include "moe/base/config_files.h"
#include "moe/base/terminal.h"

namespace moe::cli {
namespace {

int64_t bytes_from(const std::string& flag, const std::string& text) {
  const size_t unit = text.empty() ? std::string::npos : std::string("KMG").find(text.back());
  const bool plain = unit == std::string::npos;
  const int shift = plain ? 0 : 10 * (static_cast<int>(unit) + 1);
  const std::string digits = plain ? text : text.substr(0, text.size() - 1);
  return number<int64_t>(flag, digits, {0, std::ldexp(NumberRange().max, -shift)}) << shift;
}

constexpr size_t kColumn = 28;  // column in which a flag's description begins

// Breaks lines that are too wide between words; descriptions continue in their column. An example is left whole.
std::string wrapped(const std::string& text) {
  const auto widest = static_cast<size_t>(limited_output_columns(kMaxColumns));
  std::string out;
  bool example = false;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    std::string line = text.substr(begin, end - begin);
    example |= line.starts_with("example");
    const std::string indent(line.starts_with("  ") ? kColumn : 0, ' ');
    while (!example && line.size() > widest) {
      const size_t blank = line.rfind(' ', widest), bar = line.rfind('|', widest - 1);
      const bool at_blank = blank != std::string::npos && blank > indent.size();
      if (!at_blank && (bar == std::string::npos || bar <= indent.size())) break;
      out += line.substr(0, at_blank ? blank : bar + 1) + '\n';
      line.replace(0, (at_blank ? blank : bar) + 1, indent);
    }
    out += line + (end < text.size() ? "\n" : "");
    begin = end + 1;
  }
  return out;
}

class Help : public CLI::Formatter {
 public:
  Help() { column_width(kColumn); }
  // Omits the flags that a flag excludes or needs: errors name them, and here they would hide its description.
  std::string make_option_opts(const CLI::Option* option) const override {
    std::string text;
    if (option->get_type_size() == 0) return text;
    if (!option->get_type_name().empty()) text += " " + option->get_type_name();
    return text;
  }
  std::string make_option_desc(const CLI::Option* option) const override {
    const std::string text = Formatter::make_option_desc(option), held = option->get_default_str();
    return option->get_type_size() == 0 || held.empty() ? text : fmt::format("{}; default: {}", text, held);
  }
  // Omits the value in braces that a flag has if none is given.
  std::string make_option_name(const CLI::Option* option, bool is_positional) const override {
    std::string name = Formatter::make_option_name(option, is_positional);
    return name.substr(0, name.find('{'));
  }
  std::string make_usage(const CLI::App* app, std::string name) const override {
    std::string usage = Formatter::make_usage(app, std::move(name));
    if (const Verb* verb = find_verb(app->get_name()); verb != nullptr && verb->starts_other_programs)
      usage.insert(usage.find_last_not_of('\n') + 1, " -- VERB [OPTIONS]");
    return usage;
  }
  std::string make_help(const CLI::App* app, std::string name, CLI::AppFormatMode mode) const override {
    std::string text = Formatter::make_help(app, std::move(name), mode);
    for (size_t at; (at = text.find("\n\n\n")) != std::string::npos;) text.erase(at, 1);
    return wrapped(text);
  }
};

}  // namespace

std::shared_ptr<CLI::FormatterBase> help_formatter() { return std::make_shared<Help>(); }

void begin_group(CLI::App& verb, const char* group) { verb.option_defaults()->group(group); }

void add_bytes(CLI::App& verb, const std::string& flag, int64_t& target, const std::string& help) {
  verb.add_option_function<std::string>(
          flag, [flag, &target](const std::string& text) { target = bytes_from(flag, text); }, help)
      ->type_name("BYTES");
}

void add_model(CLI::App& verb, commands::ModelFlags& m) {
  add_text(verb, "--model", "MODEL|FILE", m.model, "a whole model (configs/models/), or a Hugging Face config.json");
  add_stack(verb, m, "number of layers; default: the model's, or 1");
}

void add_nodes(CLI::App& verb, commands::Selection& s) {
  add_number(verb, "--nodes", s.nodes, "number of nodes, each like the profile's; default: the profile's number",
             {1, 65536});
}

void add_number_or_all(CLI::App& verb, const std::string& flag, std::optional<int>& target, const std::string& help,
                       int least) {
  verb.add_option_function<std::string>(
          flag,
          [flag, &target, least](const std::string& text) {
            const NumberRange range{static_cast<double>(least), 1e6};
            target = text == "all" ? std::numeric_limits<int>::max() : number<int>(flag, text, range);
          },
          help)
      ->type_name("N|all");
}

void refuse_empty(CLI::Option& option) {
  option.check([name = option.get_name(), type = option.get_type_name()](const std::string& text) {
    require<BadInput>(!text.empty(), "{}: found '', expected {}", name, type);
    return std::string();
  });
}

void add_trace(CLI::App& verb, commands::TraceFlags& target, const std::string& help) {
  add_text(verb, "--trace", "FILE", target.file, help)->each(commands::require_timeline);
  const std::string part = " to show in the timeline, taken from both ends; default: as many as open in a second";
  add_number_or_all(verb, "--trace-layers", target.layers, "layers of each stage" + part, 1);
  add_number_or_all(verb, "--trace-micro-batches", target.micro_batches, "micro-batches" + part, 1);
  for (const char* part_flag : {"--trace-layers", "--trace-micro-batches"}) needs(verb, part_flag, {"--trace"});
}

void add_stack(CLI::App& verb, commands::ModelFlags& m, const std::string& layers) {
  add_number(verb, "--layers", m.layers, layers, {1, 1e5});
  add_micro_batches(verb, m);
}

void add_micro_batches(CLI::App& verb, commands::ModelFlags& m) {
  add_number(verb, "--micro-batches", m.micro_batches, "number of micro-batches, of --batch samples each", {1, 1e6});
  add_text(verb, "--pipeline", "gpipe|1f1b", m.pipeline,
           "order of micro-batches; default: 1f1b on one stage or with virtual stages, else gpipe");
  add_number(verb, "--virtual-stages", m.virtual_stages,
             "chunks of layers on each pipeline stage (interleaved 1F1B); default: 1", {1, 1e5});
}

namespace {

template <class Value>
std::string help_of(const LayerField<Value>& field) {
  const LayerShape usual;
  if (std::same_as<Value, bool> || field.help.find("; default: ") != std::string_view::npos)
    return std::string(field.help);
  if constexpr (std::is_enum_v<Value>)
    return with_default(field.help, name_of(usual.*field.member));
  else if constexpr (std::same_as<Value, std::optional<double>>)
    return with_default(field.help, (usual.*field.member).value());
  else
    return with_default(field.help, usual.*field.member);
}

std::optional<double> factor_or_none(const std::string& flag, const std::string& text) {
  if (text == "none") return std::nullopt;
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  require<BadInput>(error == std::errc{} && end == text.data() + text.size() && value > 0 && value < kFactorLimits.max,
                    "{}: found '{}', expected a number > 0 and below {}, or none", flag, text, kFactorLimits.max);
  return value;
}

// Adds the flag of a layer's field.
template <class Value>
void add_field(CLI::App& verb, const LayerField<Value>& field, PartialLayerFields& fields) {
  const std::string flag = field.flag();
  const std::string help = help_of(field);
  if constexpr (std::same_as<Value, bool>) {
    const bool usually = LayerShape{}.*field.member;
    verb.add_flag_callback(
        flag, [&fields, member = field.member, usually] { fields.set(member, !usually); }, help);
  } else {
    const auto value = [flag, field](const std::string& text) -> Value {
      const NumberRange range{field.limits.min, field.limits.max};
      if constexpr (LayerField<Value>::is_name)
        return field.from(text, flag);
      else if constexpr (std::is_arithmetic_v<Value>)
        return number<Value>(flag, text, range);
      else
        return factor_or_none(flag, text);
    };
    CLI::Option& option = *verb.add_option_function<std::string>(
        flag, [&fields, member = field.member, value](const std::string& text) { fields.set(member, value(text)); },
        help);
    option.type_name(std::string(field.type));
    if (!std::is_arithmetic_v<Value>) refuse_empty(option);
  }
}

}  // namespace

void add_layer(CLI::App& verb, commands::Selection& s) {
  commands::LayerFlags& l = s.layer;
  add_text(verb, "--layer", "LAYER|FILE", s.layer_file, "a layer (configs/layers/); the flags below override it");
  for_each_layer_field([&](const auto& field) {
    if (!field.planned_only) add_field(verb, field, l.fields);
  });
  add_named(verb, "--capacity-rounding", "ragged|lcm|exact|tutel|deepspeed|megatron", rounding_from, l.rounding,
            "rule by which an expert's number of rows is rounded; default: ragged");
  add_groups(verb, s);
}

void add_batch(CLI::App& verb, commands::Selection& s) {
  for_each_layer_field([&](const auto& field) {
    if (field.key == "batch") add_field(verb, field, s.layer.fields);
  });
}

void add_stage_layers(CLI::App& verb, commands::Selection& s) {
  for_each_layer_field([&](const auto& field) {
    if (field.key == "first_stage_layers" || field.key == "last_stage_layers") add_field(verb, field, s.layer.fields);
  });
}

void add_groups(CLI::App& verb, commands::Selection& s) {
  commands::LayerFlags& l = s.layer;
  add_number(verb, "--dp", l.dp, "data-parallel group size; default: ranks / (cp x mp x pp)", {1, 1e6});
  add_number(verb, "--cp", l.cp, "context-parallel group size: ranks that share each sample's tokens; default: 1",
             {1, 1e6});
  add_named(verb, "--cp-exchange", "allgather|ring", cp_exchange_from, l.cp_exchange,
            "how CP ranks exchange keys and values: allgather before attention, ring during it; default: allgather");
  add_number(verb, "--mp", l.mp,
             "model-parallel (tensor-parallel) group size; default: ranks per node, or 1 on one node", {1, 1e6});
  add_number(verb, "--ep", l.ep,
             "expert-parallel group size; default: the largest divisor of the experts up to the nodes (on one node, "
             "the ranks)",
             {1, 1e6});
  add_number(verb, "--esp", l.esp, "expert-sharding group size; default: ranks per node, or 1 on one node", {1, 1e6});
  add_number(verb, "--pp", l.pp, "number of pipeline stages; default: 1", {1, 1e6});
  add_text(verb, "--placement", "esp-inside|ep-inside", l.placement,
           "which group of an expert's ranks are neighbours: ESP or EP; default: esp-inside");
}

void add_global_batch(CLI::App& verb, std::optional<int64_t>& samples) {
  add_number(verb, "--global-batch", samples,
             "samples per step over all replicas; searches the number and the size (--batch) of micro-batches",
             {1, 1e9});
}

void add_recompute(CLI::App& verb, commands::Selection& s) {
  add_named(verb, "--recompute", "none|selective|full", recompute_from, s.layer.recompute,
            "what the backward computes again; selective: attention scores; full: whole layers, of which only outputs "
            "are kept");
}

void add_offload(CLI::App& verb, commands::Selection& s) {
  add_named(verb, "--offload", "none|experts", offload_from, s.layer.offload,
            "experts: keeps experts' weights and optimizer states in host memory, except two layers' weights");
}

void add_states(CLI::App& verb, commands::Selection& s) {
  add_number(verb, "--zero", s.layer.zero,
             "ZeRO stage; 1: shards optimizer states; only in memory: 2: also gradients, 3: also weights",
             {0, kMaxZeroStage});
  add_recompute(verb, s);
  add_offload(verb, s);
}

void add_framework(CLI::App& verb, commands::ModelFlags& m) {
  std::vector<std::pair<std::string, std::string>> keys;
  for (const commands::Framework& framework : commands::frameworks()) keys.emplace_back(framework.key, framework.key);
  add_choice(
      verb, "--framework", m.framework, keys,
      "framework whose rules determine the memory of a rank and the allowed shapes; tune then only considers its "
      "schedules; default: moetune, in tune any");
}

void add_planned_fields(CLI::App& verb, commands::Selection& s) {
  for_each_layer_field([&](const auto& field) {
    if (field.planned_only) add_field(verb, field, s.layer.fields);
  });
}

void add_schedule(CLI::App& verb, commands::Selection& s) {
  verb.add_option(
          "--schedule", s.schedules,
          "one or several schedules (NAME,NAME or all,wave); default: complete systems, without the intermediate "
          "steps of papers' tables; tune compares all of these, but runs fewer for a grid or a model")
      ->type_name("SCHEDULE|default|all")
      ->delimiter(',');
}

void add_degrees(CLI::App& verb, commands::Selection& s) {
  add_number(verb, "--degree-forward", s.degrees.forward, "number of chunks of the forward; 0: tuned", {0, 4096});
  add_number(verb, "--degree-backward", s.degrees.backward, "number of chunks of the backward; 0: tuned", {0, 4096});
  add_number(verb, "--micro-op-bytes", s.degrees.micro_op_bytes,
             "size of gradient pieces, for schedules that cut gradients; 0: tuned; default: 30 MB", {0, 1e12});
  add_number(verb, "--min-chunk-bytes", s.degrees.min_chunk_bytes, "for monta: least size of a chunk", {0, 1e12});
  verb.add_flag("--nearest", s.nearest,
                "if the profile lacks a row, use the row of the nearest group size, or scale that of another dtype");
}

void add_overwrite(CLI::App& verb) {
  const std::string meaning = "replace an existing records file";
  verb.add_flag("--overwrite", meaning);
}

void add_records(CLI::App& verb, std::string& out, const std::string& help) {
  add_text(verb, "-o,--out", "FILE", out, help);
  add_overwrite(verb);
}

void add_json(CLI::App& verb, bool& json) {
  verb.add_flag("--json", json, "print one JSON document on stdout, and nothing else");
}

void set_example(CLI::App& verb, const std::string& words) {
  verb.footer("example:\n  " + program_command() + " " + verb.get_name() + words);
}

void forbid_other_flags(CLI::App& verb, const std::string& flag, const std::vector<std::string>& kept) {
  CLI::Option* alone = verb.get_option(flag);
  for (CLI::Option* other : verb.get_options()) {
    const bool stays = std::ranges::any_of(kept, [&](const std::string& name) { return other->check_name(name); });
    if (other != alone && other != verb.get_help_ptr() && !stays) alone->excludes(other);
  }
}

void add_plan(CLI::App& verb, std::string& plan, const std::vector<std::string>& kept) {
  add_text(verb, "--plan", "FILE", plan,
           "run or simulate this plan (from export plan or --save-plan) instead of a layer's schedule")
      ->group(kWhatHeading);
  forbid_other_flags(verb, "--plan", kept);
}

void add_save_plan(CLI::App& verb, std::string& file) {
  add_text(verb, "--save-plan", "FILE", file, "write the plan of one schedule as a file for --plan (docs/exchange.md)");
}

void needs(CLI::App& verb, const std::string& flag, const std::vector<std::string>& others) {
  for (const std::string& other : others) verb.get_option(flag)->needs(verb.get_option(other));
}

void add_serve(CLI::App& verb, commands::ServeFlags& s, std::string& cluster, int batches,
               const std::vector<std::string>& others) {
  const std::vector<std::string> own = {"--variant", "--routing",     "--skew", "--correlation",   "--drift",
                                        "--batches", "--path-length", "--pack", "--swap-gb-per-s", "--write-profile"};
  CLI::Option* serve = verb.add_flag(
      "--serve", s.serve,
      "serve batches of inference with top-1 gates on one EP group of all ranks, with experts placed by popularity "
      "(Lina) or in fixed places; default cluster: a100-8");
  verb.add_option("--variant", s.variants, "with --serve: only these placements of experts; default: all")
      ->type_name("NAME[,..]")
      ->delimiter(',');
  add_text(verb, "--routing", "FILE", s.routing, "with --serve: routing trace; default: synthetic routing");
  add_number(verb, "--skew", s.skew, "with --serve, synthetic routing: Zipf's exponent of popularity; default: 0.42",
             {0, 10});
  add_number(verb, "--correlation", s.correlation,
             "with --serve, synthetic routing: correlation of a token's experts in successive layers; default: 0.62",
             {0, 1});
  add_number(verb, "--drift", s.drift, "with --serve, synthetic routing: difference between batches; default: 0.25",
             {0, 10});
  add_number(
      verb, "--batches", s.batches,
      with_default("with --serve, synthetic routing: batches, of which half are profiled and half served", batches),
      {2, 1e6});
  add_number(verb, "--path-length", s.path,
             "with --serve: number of layers in the paths that estimate popularity; default: 3", {1, 64});
  add_number(verb, "--pack", s.pack, "with --serve: largest number of experts on a device; default: 4", {1, 1e6});
  add_number(verb, "--swap-gb-per-s", s.swap_gb_per_s,
             "with --serve: GB/s from host memory to a device; default: 25, or as measured if ranks are not emulated",
             {1e-3, 1e6});
  add_text(verb, "--write-profile", "FILE", s.write_profile,
           "with --serve: write how often experts follow each path, as CSV");
  for (const std::string& flag : own) needs(verb, flag, {"--serve"});
  for (const std::string& flag : others) serve->excludes(verb.get_option(flag));
  verb.final_callback([&verb, &s, &cluster] {
    if (s.serve && verb.count("--cluster") == 0) cluster = commands::kServeCluster;
  });
}

}  // namespace moe::cli
