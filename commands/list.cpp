#include "commands/list.h"

#include <algorithm>

#include "commands/shared/printed.h"
#include "moe/base/check.h"
#include "moe/base/config.h"
#include "moe/base/config_files.h"
#include "moe/base/json.h"
#include "moe/base/terminal.h"
#include "moe/prices/composed_profile.h"
#include "moe/schedule/schedule.h"
#include "moe/shape/model_file.h"

namespace moe::commands {
namespace {

constexpr int kIndentAndName = 27;

template <class Rows>
Json named(const Rows& rows) {
  Json list = Json::array();
  for (const auto& row : rows) list.push_back({{"name", row.name}, {"summary", row.summary}});
  return list;
}

/// Returns the file's summary, else its source; if it cannot be read, the reason.
std::string summary_of(const std::string& path) {
  try {
    const ConfigFile file = read_toml(path);
    const ConfigValue* whole = file.root.find("of");  // a sample of a grid
    if (whole != nullptr && whole->kind == ConfigKind::text) return "a sample of " + whole->text;
    for (const char* key : {"summary", "source"})
      if (const ConfigValue* said = file.root.find(key); said != nullptr && said->kind == ConfigKind::text)
        return said->text;
    return "its file names no source";
  } catch (const BadInput& error) {
    return error.what();
  }
}

/// Returns the shape of the model in the file; if it cannot be read, the reason.
std::string shape_of_model(const std::string& path) {
  try {
    const Model m = read_model(path);
    const std::string experts = m.layer.experts > 0 ? fmt::format("{} experts", m.layer.experts) : "an expert a node";
    const std::string shared = m.layer.shared_hidden > 0 ? fmt::format(" and {} shared", m.layer.shared_hidden) : "";
    return fmt::format("{}, M {}, {} of H {}{} ({}), k {}, L {}, {}", count_layers(m.layers, m.dense.expand(m.layers)),
                       m.layer.model_dim, experts, m.layer.hidden, shared, name_of(m.layer.ffn), m.layer.top_k,
                       m.layer.seq, name_of(m.layer.dtype));
  } catch (const BadInput& error) {
    return error.what();
  }
}

Json files(const std::string& folder, std::string (*summary)(const std::string& path) = summary_of) {
  Json list = Json::array();
  for (const std::string& name : config_names(folder))
    list.push_back({{"name", name}, {"summary", summary(find_config(folder, name))}});
  return list;
}

/// Returns the models, each with its origin, the source that its file names.
Json models() {
  Json list = files("models", shape_of_model);
  for (Json& row : list) row["origin"] = summary_of(find_config("models", row["name"].get<std::string>()));
  return list;
}

/// Cuts a text to one line of the terminal.
std::string shortened(std::string text) {
  text.resize(std::min(text.find('\n'), text.size()));
  const auto room = static_cast<size_t>(limited_output_columns(kMaxColumns) - kIndentAndName);
  return text.size() <= room ? text : text.substr(0, text.find_last_of(' ', room - 3)) + " ..";
}

}  // namespace

int run_list(const ListOptions& options) {
  Json clusters = files("clusters");
  clusters.push_back(
      {{"name", kComposedExample},
       {"summary", fmt::format("an example of {}, where a GPU has a link of 400 Gbit/s", kComposedForm)}});
  clusters.push_back({{"name", "host"},
                      {"summary", "this machine's threads as 2 nodes x 2 ranks, unpaced; for tune and the benches"}});
  const Json all{{"schedules", named(schedules())},
                 {"iteration_schedules", named(iteration_schedules())},
                 {"clusters", clusters},
                 {"grids", files("grids")},
                 {"layers", files("layers")},
                 {"models", models()},
                 {"gates", named(gate_parts())},
                 {"orders", named(order_parts())},
                 {"dispatchers", named(dispatcher_parts())},
                 {"hooks", named(hook_parts())},
                 {"ffns", named(ffn_parts())},
                 {"papers", named(commands::kPaperTables)},
                 {"assumptions", files("papers/assume")}};
  if (options.json) {
    fmt::print("{}\n", document_text(all));
    return 0;
  }
  for (const auto& [kind, rows] : all.items()) {
    fmt::print("{}\n", kind);
    for (const Json& row : rows)
      fmt::print("  {:<24} {}\n", row["name"].get<std::string>(), shortened(row["summary"].get<std::string>()));
  }
  return 0;
}

}  // namespace moe::commands
