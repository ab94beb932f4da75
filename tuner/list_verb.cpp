#include "tuner/list_verb.h"

#include "moe/base/config_files.h"
#include "moe/schedule/schedule.h"
#include "tuner/results_json.h"

namespace moe {
namespace {

template <class Rows>
Json named(const Rows& rows) {
  Json list = Json::array();
  for (const auto& row : rows) list.push_back({{"name", row.name}, {"summary", row.summary}});
  return list;
}

Json files(const std::string& folder, const std::string& summary) {
  Json list = Json::array();
  for (const std::string& name : config_names(folder)) list.push_back({{"name", name}, {"summary", summary}});
  return list;
}

}  // namespace

int run_list(bool json) {
  Json clusters = files("clusters", "configs/clusters");
  clusters.push_back({{"name", "host"}, {"summary", "this machine's threads as 2 nodes x 2 ranks, unpaced"}});
  const Json all{{"schedules", named(schedules())},
                 {"clusters", clusters},
                 {"grids", files("grids", "configs/grids")},
                 {"layers", files("layers", "configs/layers")},
                 {"gates", named(gate_parts())},
                 {"orders", named(order_parts())},
                 {"dispatchers", named(dispatcher_parts())},
                 {"ffns", named(ffn_parts())}};
  if (json) {
    fmt::print("{}\n", all.dump(1));
    return 0;
  }
  for (const auto& [kind, rows] : all.items()) {
    fmt::print("{}\n", kind);
    for (const Json& row : rows)
      fmt::print("  {:<20} {}\n", row["name"].get<std::string>(), row["summary"].get<std::string>());
  }
  return 0;
}

}  // namespace moe
